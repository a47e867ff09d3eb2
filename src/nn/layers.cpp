// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/layers.h"

#include <cmath>

#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "braid/core/dry.h"
#include "braid/kernels/norm.h"
#include "braid/memory/instruments.h"

namespace braid::nn {
namespace {

// Without a record of the fill in the autograd graph: the tensor becomes a leaf afterwards.
void fill_initial(const at::Tensor& tensor, RandomKey key, const Init& init, int64_t first) {
  switch (init.kind) {
    case Init::Kind::zeros:
      tensor.zero_();
      break;
    case Init::Kind::ones:
      tensor.fill_(1);
      break;
    case Init::Kind::normal:
      fill_normal(tensor, key, {.mean = 0, .std = init.scale, .low = -init.cut, .high = init.cut},
                  first);
      break;
    case Init::Kind::uniform:
      fill_uniform(tensor, key, -init.scale, init.scale, first);
      break;
  }
}

// Of the two layers of an MLP: lanes are those outside of it.
LinearOptions with_split(LinearOptions options, Split split, const kernels::Lanes& lanes) {
  options.split = split;
  (split == Split::columns ? options.in_lanes : options.out_lanes) = lanes;
  return options;
}

int64_t product_of(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

std::vector<int64_t> with_last(std::vector<int64_t> lead, int64_t last) {
  lead.push_back(last);
  return lead;
}

}  // namespace

Scope Scope::operator/(const std::string& name) const {
  return {build, path.empty() ? name : path + "." + name};
}

Init Init::fan_in(int64_t inputs) { return uniform(1 / std::sqrt(static_cast<double>(inputs))); }

at::Tensor Layer::param(const std::string& name, at::IntArrayRef whole, Init init,
                        const ParamPart& part) {
  const Build& build = scope_.build;
  Made made = {init, {}, part};
  if (!part.cuts.empty()) made.piece = {whole.vec(), part.cuts, 0};
  const std::vector<int64_t> sizes = part.cuts.empty() ? whole.vec() : box_of(made.piece);
  const auto make = [&] {
    return at::empty(sizes, at::TensorOptions().dtype(build.precision.param).device(build.device));
  };
  made_[name] = std::move(made);
  if (build.dry_params) {
    const memory::Instruments dry({.dry = true});
    return register_parameter(name, make());
  }
  const at::Tensor tensor = make();
  initial(name, tensor, 0);
  return register_parameter(name, tensor);
}

void Layer::initial(const std::string& name, const at::Tensor& values, int64_t first) const {
  const c10::NoGradGuard no_grad;
  const Made& made = made_.at(name);
  if (is_dry(values)) return;  // run by run it would take long for nothing
  const RandomKey key = random_key(scope_.build.seed, (scope_ / name).path);
  if (made.piece.whole.empty()) return fill_initial(values, key, made.init, first);
  Piece piece = made.piece;
  piece.first = first;
  const at::Tensor flat = values.view({-1});
  for (const Run& run : runs_of(piece, flat.numel()))
    fill_initial(flat.narrow(0, run.at, run.count), key, made.init, run.from);
}

Param Layer::described(const std::string& name, const at::Tensor& tensor) const {
  const auto found = made_.find(name);
  if (found == made_.end()) return {name, tensor};
  const Made& made = found->second;
  return {.name = name,
          .tensor = tensor,
          .piece = made.piece,
          .repeated = made.part.repeated,
          .expert = made.part.expert,
          .tensor_partial = made.part.tensor_partial};
}

LayerRow Layer::row(std::string kind, std::vector<int64_t> output, double flops) const {
  int64_t own = 0;  // of all ranks
  for (const auto& item : named_parameters(/*recurse=*/false)) {
    const auto made = made_.find(item.key());
    const bool in_part = made != made_.end() && !made->second.piece.whole.empty();
    own += in_part ? product_of(made->second.piece.whole) : item.value().numel();
  }
  output.insert(output.begin(), 1);
  return {path(), std::move(kind), std::move(output), own, flops};
}

at::Tensor Norm::forward(const at::Tensor& x, c10::ScalarType dtype) const {
  const auto here = enter();
  if (as_reference())
    return at::layer_norm(x.to(weight.scalar_type()), weight.sizes(), weight, bias, eps_);
  return kernels::norm_rows(x, {weight, bias}, {.eps = eps_, .dtype = dtype, .lanes = lanes_});
}

NormedSum Norm::add(const at::Tensor& x, kernels::Branch branch) const {
  if (as_reference()) {
    const at::Tensor sum = branch.defined() ? x.add(branch.value()) : x;
    branch = {};
    return {sum, forward(sum)};
  }
  const auto here = enter();
  const auto [sum, y] = kernels::add_norm_rows(x, branch, {weight, bias},
                                               {.eps = eps_, .dtype = compute(), .lanes = lanes_});
  return {sum, y};
}

LayerRow Norm::row(std::vector<int64_t> lead) const {
  const int64_t width = weight.numel();
  return Layer::row(fmt::format("{} {}", bias.defined() ? "LayerNorm" : "RmsNorm", width),
                    with_last(std::move(lead), width), 0);
}

LayerNorm::LayerNorm(Scope scope, int64_t width, double eps, kernels::Lanes lanes)
    : Norm(std::move(scope)) {
  if (lanes.padded()) lanes_ = lanes.lanes;
  weight = param("weight", {width}, Init::ones(), replicated());
  bias = param("bias", {width}, Init::zeros(), replicated());
  eps_ = eps;
}

RmsNorm::RmsNorm(Scope scope, int64_t width, double eps) : Norm(std::move(scope)) {
  weight = param("weight", {width}, Init::ones(), replicated());
  eps_ = eps;
}

Embedding::Embedding(Scope scope, int64_t entries, int64_t width, Init init, Split split)
    : Layer(std::move(scope)), entries_(entries), held_{0, entries}, split_(split == Split::rows) {
  ParamPart part = replicated();
  if (split_ && layout().tensor.size() > 1) {
    held_ = parallel::split_ranges(entries, layout().tensor)[0];
    part = {.cuts = {{0, {held_}}}, .repeated = layout().expert.rank() > 0};
  }
  weight = param("weight", {entries, width}, init, part);
}

at::Tensor Embedding::forward(const at::Tensor& ids) const {
  const auto here = enter();
  if (split_) return parallel::split_embedding(ids, weight, held_, split_axis());
  return at::embedding(weight, ids);
}

LayerRow Embedding::row(int64_t tokens) const {
  return Layer::row(fmt::format("Embedding {} x {}", entries_, weight.size(1)),
                    {tokens, weight.size(1)}, 0);
}

Conv2d::Conv2d(Scope scope, int64_t in, int64_t out, Conv2dOptions options)
    : Layer(std::move(scope)), options_(options) {
  const Init init = Init::fan_in(in * options.kernel * options.kernel);
  weight = param("weight", {out, in, options.kernel, options.kernel}, init, replicated(false));
  bias = param("bias", {out}, init, replicated(false));
}

at::Tensor Conv2d::forward(const at::Tensor& x) const {
  const auto here = enter();
  return at::conv2d(cast(x), cast(weight), cast(bias), options_.stride, options_.padding);
}

LayerRow Conv2d::row(int64_t rows, int64_t columns) const {
  const double flops = 2.0 * static_cast<double>(rows * columns) * weight.numel();
  return Layer::row(fmt::format("Conv2d {} -> {}, {}x{}", weight.size(1), weight.size(0),
                                options_.kernel, options_.kernel),
                    {weight.size(0), rows, columns}, flops);
}

MlpBlock::MlpBlock(Scope scope, int64_t width, MlpBlockOptions options)
    : Layer(std::move(scope)),
      fc1(child<Linear>("fc1", width, options.hidden,
                        with_split(options.linear, Split::columns, options.lanes))),
      fc2(child<Linear>("fc2", options.hidden, width,
                        with_split(options.linear, Split::rows, options.lanes))),
      drop1_(this->scope(), "drop1", options.dropout),
      drop2_(this->scope(), "drop2", options.dropout),
      gelu_(options.tanh_gelu ? kernels::Activation::gelu_tanh : kernels::Activation::gelu) {}

at::Tensor MlpBlock::forward(const at::Tensor& x, const Pass& pass) const {
  const auto here = enter();
  if (as_reference()) return forward_as_reference(x, pass);
  const kernels::Activated h(gelu_, columns(x, pass, {fc1.get()})[0]);
  if (!drop1_.active(pass)) return drop2_(fc2->forward(h), pass);
  return drop2_(fc2->forward(drop1_(kernels::activated(h), pass, fc1->window(-1))), pass);
}

at::Tensor MlpBlock::forward_as_reference(const at::Tensor& x, const Pass& pass) const {
  const char* curve = gelu_ == kernels::Activation::gelu_tanh ? "tanh" : "none";
  const at::Tensor y = at::gelu(columns(x, pass, {fc1.get()})[0], curve);
  return drop2_(fc2->forward(drop1_(y, pass, fc1->window(-1))), pass);
}

void MlpBlock::rows(std::vector<LayerRow>& table, std::vector<int64_t> lead) const {
  table.push_back(fc1->row(lead));
  table.push_back(fc2->row(lead));
}

}  // namespace braid::nn
