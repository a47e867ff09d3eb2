// SPDX-License-Identifier: BSD-3-Clause
// Layers and dropout over the tensor axis.
#include <algorithm>
#include <utility>

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>

#include "braid/comm/differentiable.h"
#include "braid/core/error.h"
#include "braid/nn/layers.h"

namespace braid::nn {
namespace {

// Indices first ... first + count - 1 of what the ranges list.
std::vector<Range> part_of(const std::vector<Range>& ranges, int64_t first, int64_t count) {
  std::vector<Range> part;
  for (const Range& range : ranges) {
    const int64_t skip = std::min(first, range.size());
    const int64_t taken = std::min(count, range.size() - skip);
    if (taken > 0) part.push_back({range.begin + skip, range.begin + skip + taken});
    first -= skip;
    count -= taken;
  }
  return part;
}

int64_t count_of(const std::vector<Range>& ranges) {
  int64_t count = 0;
  for (const Range& range : ranges) count += range.size();
  return count;
}

bool shares_tokens(const Layout& layout) { return layout.sequence && layout.tensor.size() > 1; }

// Column-split layers take x whole, after its way, and keep it so.
bool in_one_piece(const Layout& layout) {
  return layout.tensor.size() == 1 || (layout.overlap == 1 && !layout.regather);
}

std::vector<parallel::SplitWeights> weights_of(const std::vector<const Linear*>& linears) {
  std::vector<parallel::SplitWeights> weights;
  for (const Linear* linear : linears) weights.push_back(linear->weights());
  return weights;
}

// As many windows as there are dimensions that x does not hold whole.
void add_tokens(kernels::Drop& drop, const HeldTokens& tokens) {
  if (count_of(tokens.ranges) != tokens.whole)
    drop.windows.push_back({1, tokens.whole, tokens.ranges});
}

}  // namespace

HeldTokens tokens_in_split(const Layout&, const Pass& pass) {
  if (pass.tokens.tokens == 0) return {};
  return {pass.tokens.tokens, pass.tokens.mine()};
}

HeldTokens tokens_between_splits(const Layout& layout, const Pass& pass) {
  HeldTokens all = tokens_in_split(layout, pass);
  if (!shares_tokens(layout)) return all;
  const comm::Counts counts = comm::even_shares(count_of(all.ranges), layout.tensor.size());
  int64_t first = 0;
  for (int rank = 0; rank < layout.tensor.rank(); ++rank)
    first += counts[static_cast<size_t>(rank)];
  return {all.whole, part_of(all.ranges, first, counts[static_cast<size_t>(layout.tensor.rank())])};
}

parallel::SplitAxis Layer::split_axis() const {
  const Layout& where = layout();
  return {.group = where.tensor,
          .sequence = where.sequence,
          .regather = where.regather,
          .overlap = where.overlap,
          .later = where.later};
}

ParamPart Layer::replicated(bool on_tokens) const {
  return {.repeated = layout().tensor.rank() > 0 || layout().expert.rank() > 0,
          .tensor_partial = on_tokens && shares_tokens(layout())};
}

at::Tensor Layer::to_split(const at::Tensor& x, const Pass& pass) const {
  return parallel::enter_split(cast(x), split_axis(),
                               count_of(tokens_in_split(layout(), pass).ranges));
}

std::vector<at::Tensor> Layer::columns(const at::Tensor& x, const Pass& pass,
                                       const std::vector<const Linear*>& linears) const {
  std::vector<at::Tensor> outputs;
  if (as_reference()) {  // each casts, and enters the split region, by itself
    for (const Linear* linear : linears) outputs.push_back(linear->forward(x));
    return outputs;
  }
  if (in_one_piece(layout())) {
    const at::Tensor whole = to_split(x, pass);
    if (linears.size() == 1) return {linears[0]->forward(whole)};
    return kernels::linears(whole, weights_of(linears),
                            {.later = layout().later, .fp8 = linears[0]->fp8()});
  }
  return parallel::column_linears(cast(x), weights_of(linears), split_axis(),
                                  count_of(tokens_in_split(layout(), pass).ranges));
}

kernels::Activated Layer::columns_to(const at::Tensor& x, const Pass& pass, const Linear& linear,
                                     kernels::Activation then) const {
  if (as_reference() || !in_one_piece(layout())) return {then, columns(x, pass, {&linear})[0]};
  return linear.forward_to(to_split(x, pass), then);
}

Linear::Linear(Scope scope, int64_t in, int64_t out, LinearOptions options)
    : Layer(std::move(scope)),
      in_(in),
      out_(out),
      stored_in_out_(options.stored_in_out),
      split_(options.split),
      fp8_(options.fp8 ? this->scope().build.precision.fp8 : Fp8::off),
      lanes_{.rows = options.out_lanes, .columns = options.in_lanes},
      sharers_(options.sharers) {
  const comm::Group& tensor = layout().tensor;
  const bool cut = split_ != Split::none && tensor.size() > 1, by_out = split_ == Split::columns;
  const int64_t size = split_ == Split::rows ? in : out;
  held_ = {{0, size}};
  ParamPart of_weight = replicated(), of_bias = replicated();
  if (cut) {
    held_ = parallel::split_ranges(size, tensor, options.unit, options.parts);
    const bool copy = layout().expert.rank() > 0 || sharers_.rank() > 0;
    of_weight = {.cuts = {{by_out == stored_in_out_ ? 1 : 0, held_}}, .repeated = copy};
    if (by_out) of_bias = {.cuts = {{0, held_}}, .repeated = copy};
  }
  weight = stored_in_out_ ? param("weight", {in, out}, options.weight, of_weight)
                          : param("weight", {out, in}, options.weight, of_weight);
  if (options.bias) bias = param("bias", {out}, options.bias_init, of_bias);
  check_fp8();
}

void Linear::check_fp8() const {
  if (fp8_ == Fp8::off || (weight.size(0) % 16 == 0 && weight.size(1) % 16 == 0)) return;
  throw ConfigError(
      {.what = fmt::format("train.fp8 for {}, whose weight is {} x {} on a rank", path(),
                           weight.size(0), weight.size(1)),
       .why = "products of 8-bit floats take widths that are multiples of 16",
       .fix = "choose widths that are multiples of 16 on each rank, or set train.fp8=off"});
}

parallel::SplitWeights Linear::weights() const {
  const at::Tensor w = comm::copy_to(weight, sharers_);
  if (lanes_.padded())
    return {kernels::pad_lanes(w, lanes_, compute()),
            bias.defined()
                ? kernels::pad_last(comm::copy_to(bias, sharers_), lanes_.rows, compute())
                : bias};
  return {stored_in_out_ ? w.t() : w, bias.defined() ? comm::copy_to(bias, sharers_) : bias};
}

// The bias comes after the sum over ranks and outside of the matmul: under autocast an fp32 bias
// makes the result fp32.
at::Tensor Linear::forward_as_reference(const at::Tensor& x) const {
  const comm::Group& ranks = layout().tensor;
  const auto [w, b] = weights();
  if (split_ == Split::none || ranks.size() == 1) return at::linear(x, w, b);
  const bool by_out = split_ == Split::columns;
  const at::Tensor part = at::linear(by_out ? comm::copy_to(x, ranks) : x, w);
  const at::Tensor y = by_out ? part : comm::reduce_from(part, ranks);
  return b.defined() ? at::add(y, b) : y;
}

at::Tensor Linear::forward(kernels::Activated x) const {
  const auto here = enter();
  if (as_reference()) return forward_as_reference(cast(kernels::activated(x)));
  for (at::Tensor* each : {&x.x, &x.up, &x.value})
    if (each->defined()) *each = cast(*each);
  if (split_ != Split::rows)
    return kernels::linears(std::move(x), {weights()}, {.later = layout().later, .fp8 = fp8()})[0];
  parallel::SplitAxis axis = split_axis();
  axis.fp8 = fp8();
  return parallel::row_linear(std::move(x), weights(), axis);
}

kernels::Activated Linear::forward_to(const at::Tensor& x, kernels::Activation then) const {
  const auto here = enter();
  return kernels::linear_to(cast(x), weights(), then, {.later = layout().later, .fp8 = fp8()});
}

int64_t Linear::held_count() const { return count_of(held_); }

kernels::DropWindow Linear::window(int64_t dim) const {
  return {dim, split_ == Split::rows ? in_ : out_, held_};
}

LayerRow Linear::row(std::vector<int64_t> lead) const {
  double flops = 2.0 * static_cast<double>(in_) * static_cast<double>(out_);
  for (const int64_t size : lead) flops *= static_cast<double>(size);
  lead.push_back(out_);
  return Layer::row(fmt::format("Linear {} -> {}", in_, out_), lead, flops);
}

kernels::Drop Dropout::at(const Pass& pass) const {
  if (!active(pass)) return {};
  const RandomKey key = random_key(pass.seed, path_);
  if (pass.device_step.defined()) return {rate_, key, pass.first_sample, {}, pass.device_step};
  return {rate_, key.with(static_cast<uint64_t>(pass.step)), pass.first_sample};
}

at::Tensor Dropout::operator()(const at::Tensor& x, const Pass& pass) const {
  if (!active(pass)) return x;
  kernels::Drop drop = at(pass);
  if (x.dim() > 2 && pass.tokens.tokens == 0 && shares_tokens(layout_)) {  // as many on each rank
    const int64_t first = layout_.tensor.rank() * x.size(1);
    add_tokens(drop, {layout_.tensor.size() * x.size(1), {{first, first + x.size(1)}}});
  } else if (x.dim() > 2) {
    add_tokens(drop, tokens_between_splits(layout_, pass));
  }
  return kernels::dropout(x, drop);
}

at::Tensor Dropout::operator()(const at::Tensor& x, const Pass& pass,
                               kernels::DropWindow window) const {
  if (!active(pass)) return x;
  kernels::Drop drop = at(pass);
  if (x.dim() > 2) add_tokens(drop, tokens_in_split(layout_, pass));
  if (window.dim < 0) window.dim += x.dim();
  if (count_of(window.ranges) != window.whole) drop.windows.push_back(std::move(window));
  return kernels::dropout(x, drop);
}

kernels::Branch DropPath::operator()(const at::Tensor& x, const Pass& pass) const {
  if (!drop_.active(pass)) return x;
  const kernels::Drop drop = drop_.at(pass);
  if (kernels_ == Kernels::braid) return kernels::drop_branch(x, drop);
  std::vector<int64_t> one(static_cast<size_t>(x.dim()), 1);
  one[0] = x.size(0);
  const at::Tensor factors = at::empty(one, x.options());
  return x.mul(
      factors.copy_(kernels::keep_mask(factors, drop.rate, drop.key, drop.first_sample, drop.step))
          .div_(1 - drop.rate));
}

}  // namespace braid::nn
