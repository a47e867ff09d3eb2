// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/layers.h"

#include <cmath>

#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

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
  int64_t own = 0;
  for (const at::Tensor& tensor : parameters(/*recurse=*/false)) own += tensor.numel();
  output.insert(output.begin(), 1);
  return {path(), std::move(kind), std::move(output), own, flops};
}

Linear::Linear(Scope scope, int64_t in, int64_t out, LinearOptions options)
    : Layer(std::move(scope)), in_(in), out_(out), stored_in_out_(options.stored_in_out) {
  weight = stored_in_out_ ? param("weight", {in, out}, options.weight)
                          : param("weight", {out, in}, options.weight);
  if (options.bias) bias = param("bias", {out}, options.bias_init);
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  const auto here = enter();
  const at::Tensor w = cast(weight);
  return at::linear(cast(x), stored_in_out_ ? w.t() : w, bias.defined() ? cast(bias) : bias);
}

LayerRow Linear::row(std::vector<int64_t> lead) const {
  const double flops = 2.0 * product_of(lead) * in_ * out_;
  return Layer::row(fmt::format("Linear {} -> {}", in_, out_), with_last(lead, out_), flops);
}

LayerNorm::LayerNorm(Scope scope, int64_t width, double eps)
    : Layer(std::move(scope)),
      weight(param("weight", {width}, Init::ones())),
      bias(param("bias", {width}, Init::zeros())),
      eps_(eps) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  const auto here = enter();
  return at::layer_norm(x.to(weight.scalar_type()), weight.sizes(), weight, bias, eps_);
}

LayerRow LayerNorm::row(std::vector<int64_t> lead) const {
  const int64_t width = weight.numel();
  return Layer::row(fmt::format("LayerNorm {}", width), with_last(std::move(lead), width), 0);
}

RmsNorm::RmsNorm(Scope scope, int64_t width, double eps)
    : Layer(std::move(scope)), weight(param("weight", {width}, Init::ones())), eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  const auto here = enter();
  return kernels::rms_norm(x, weight, eps_);
}

LayerRow RmsNorm::row(std::vector<int64_t> lead) const {
  const int64_t width = weight.numel();
  return Layer::row(fmt::format("RmsNorm {}", width), with_last(std::move(lead), width), 0);
}

Embedding::Embedding(Scope scope, int64_t entries, int64_t width, Init init)
    : Layer(std::move(scope)), weight(param("weight", {entries, width}, init)) {}

at::Tensor Embedding::forward(const at::Tensor& ids) const {
  const auto here = enter();
  return at::embedding(weight, ids);
}

LayerRow Embedding::row(int64_t tokens) const {
  return Layer::row(fmt::format("Embedding {} x {}", weight.size(0), weight.size(1)),
                    {tokens, weight.size(1)}, 0);
}

Conv2d::Conv2d(Scope scope, int64_t in, int64_t out, Conv2dOptions options)
    : Layer(std::move(scope)), options_(options) {
  const Init init = Init::fan_in(in * options.kernel * options.kernel);
  weight = param("weight", {out, in, options.kernel, options.kernel}, init);
  bias = param("bias", {out}, init);
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

kernels::Drop Dropout::at(const Pass& pass) const {
  if (!active(pass)) return {};
  const RandomKey key = random_key(pass.seed, path_).with(static_cast<uint64_t>(pass.step));
  return {rate_, key, pass.first_sample};
}

at::Tensor Dropout::operator()(const at::Tensor& x, const Pass& pass) const {
  return active(pass) ? kernels::dropout(x, at(pass)) : x;
}

at::Tensor DropPath::operator()(const at::Tensor& x, const Pass& pass) const {
  return drop_.active(pass) ? kernels::drop_path(x, drop_.at(pass)) : x;
}

MlpBlock::MlpBlock(Scope scope, int64_t width, MlpBlockOptions options)
    : Layer(std::move(scope)),
      fc1(child<Linear>("fc1", width, options.hidden, options.linear)),
      fc2(child<Linear>("fc2", options.hidden, width, options.linear)),
      drop1_(this->scope(), "drop1", options.dropout),
      drop2_(this->scope(), "drop2", options.dropout),
      tanh_gelu_(options.tanh_gelu) {}

at::Tensor MlpBlock::forward(const at::Tensor& x, const Pass& pass) const {
  const auto here = enter();
  at::Tensor y = at::gelu(fc1->forward(x), tanh_gelu_ ? "tanh" : "none");
  y = fc2->forward(drop1_(y, pass));
  return drop2_(y, pass);
}

void MlpBlock::rows(std::vector<LayerRow>& table, std::vector<int64_t> lead) const {
  table.push_back(fc1->row(lead));
  table.push_back(fc2->row(lead));
}

}  // namespace braid::nn
