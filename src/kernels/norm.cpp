// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <string>
#include <tuple>

#include "kernels/again.h"
#include "kernels/column_sum.h"
#include "kernels/meta.h"
#include "kernels/norm_cpu.h"
#include "kernels/norm_parts.h"
#include "kernels/rows.h"
#include "kernels/sum_taker.h"

namespace braid::kernels {
namespace {

using torch::autograd::variable_list;

int64_t norm_width(const at::Tensor& x) { return x.size(-1); }
int64_t norm_row_count(const at::Tensor& x) {
  return norm_width(x) == 0 ? 0 : x.numel() / norm_width(x);
}

std::vector<int64_t> sizes_in_lanes(const at::Tensor& x, int64_t lanes) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = lanes;
  return sizes;
}

// What both passes give back, uninitialised.
NormForward norm_results(const at::Tensor& x, const at::Tensor& branch, MaybeTensor keep,
                         const at::Tensor& bias, c10::ScalarType dtype, int64_t lanes) {
  TORCH_CHECK(!keep || (branch.defined() && keep->numel() == x.size(0)), "a branch of ",
              branch.sizes(), " is not dropped by ", keep->numel(), " samples");
  TORCH_CHECK(lanes >= norm_width(x) && (!branch.defined() || norm_width(branch) == lanes),
              "rows of ", norm_width(x), " numbers do not match lanes of ", lanes);
  at::Tensor sum, y = fresh(sizes_in_lanes(x, lanes), x, dtype);
  if (branch.defined()) sum = fresh(x.sizes(), x);
  const int64_t numbers = bias.defined() ? 2 : 1;
  return {sum, y, fresh({norm_row_count(x), numbers}, x, accumulate_dtype(x.scalar_type()))};
}

NormGrads norm_grad_results(const at::Tensor& grad, const at::Tensor& sum, const at::Tensor& weight,
                            const at::Tensor& statistics, std::optional<c10::ScalarType> branch,
                            MaybeTensor keep, bool again) {
  at::Tensor grad_x = fresh(sum.sizes(), sum), grad_branch, grad_bias, y;
  if (branch && (keep || *branch != sum.scalar_type() || norm_width(grad) != norm_width(sum)))
    grad_branch = fresh(grad.sizes(), sum, *branch);
  at::Tensor grad_weight = fresh(weight.sizes(), weight);
  if (statistics.size(1) == 2) grad_bias = fresh(weight.sizes(), weight);
  if (again) y = fresh(grad.sizes(), grad);
  return {grad_x, grad_branch, grad_weight, grad_bias, y, {}};
}

at::Tensor in_rows(const at::Tensor& x) {
  return x.defined() ? x.contiguous().view({norm_row_count(x), norm_width(x)}) : x;
}

NormForward norm_cpu_op(const at::Tensor& x, MaybeTensor branch, MaybeTensor keep, double rate,
                        const at::Tensor& weight, MaybeTensor bias, double eps,
                        c10::ScalarType dtype, int64_t lanes) {
  const at::Tensor other = branch.value_or(at::Tensor()), shift = bias.value_or(at::Tensor());
  const NormForward results = norm_results(x, other, keep, shift, dtype, lanes);
  const auto& [sum, y, statistics] = results;
  if (x.numel() > 0)
    norm_on_cpu({in_rows(x), in_rows(other), weight.contiguous(),
                 shift.defined() ? shift.contiguous() : shift, sum, y, statistics, eps,
                 keep.value_or(at::Tensor()), rate});
  return results;
}

NormGrads norm_grad_cpu_op(const at::Tensor& grad, MaybeTensor grad_sum, const at::Tensor& sum,
                           const at::Tensor& weight, MaybeTensor bias, const at::Tensor& statistics,
                           std::optional<c10::ScalarType> branch, MaybeTensor keep, double rate,
                           bool again, std::optional<c10::ScalarType> of_branch) {
  NormGrads results = norm_grad_results(grad, sum, weight, statistics, branch, keep, again);
  auto& [grad_x, grad_branch, grad_weight, grad_bias, y, total] = results;
  norm_grad_on_cpu({in_rows(grad), in_rows(grad_sum.value_or(at::Tensor())),
                    sum.numel() > 0 ? in_rows(sum) : sum.view({0, weight.numel()}),
                    weight.contiguous(), bias ? bias->contiguous() : at::Tensor(), statistics,
                    grad_x, grad_branch, grad_weight, grad_bias, y, keep.value_or(at::Tensor()),
                    rate});
  if (of_branch)
    total = column_sum_cpu(as_rows(grad_branch.defined() ? grad_branch : grad_x), *of_branch);
  return results;
}

// Kernels read rows that lie together.
void take_rows(Scratch& copies, const at::Tensor& x) {
  if (x.defined() && !x.is_contiguous()) copies.take(bytes_of(x));
}

NormForward norm_meta(const at::Tensor& x, MaybeTensor branch, MaybeTensor keep, double,
                      const at::Tensor&, MaybeTensor bias, double, c10::ScalarType dtype,
                      int64_t lanes) {
  const at::Tensor other = branch.value_or(at::Tensor());
  NormForward results = norm_results(x, other, keep, bias.value_or(at::Tensor()), dtype, lanes);
  Scratch copies(x);
  for (const at::Tensor& read : {x, other}) take_rows(copies, read);
  return results;
}

NormGrads norm_grad_meta(const at::Tensor& grad, MaybeTensor grad_sum, const at::Tensor& sum,
                         const at::Tensor& weight, MaybeTensor, const at::Tensor& statistics,
                         std::optional<c10::ScalarType> branch, MaybeTensor keep, double,
                         bool again, std::optional<c10::ScalarType> of_branch) {
  NormGrads results = norm_grad_results(grad, sum, weight, statistics, branch, keep, again);
  if (of_branch) std::get<5>(results) = fresh({norm_width(grad)}, sum, *of_branch);
  Scratch copies(sum);
  for (const at::Tensor& read : {grad, grad_sum.value_or(at::Tensor()), sum})
    take_rows(copies, read);
  if (dry_on(c10::kCUDA) && sum.numel() > 0)
    copies.take(norm_parts(norm_row_count(sum)) * (statistics.size(1) + (of_branch ? 1 : 0)) *
                norm_width(sum) * static_cast<int64_t>(statistics.element_size()));
  return results;
}

constexpr const char* norm_schema =
    "(Tensor x, Tensor? branch, Tensor? keep, float rate, Tensor weight, Tensor? bias, float eps, "
    "ScalarType dtype, int lanes) -> (Tensor sum, Tensor y, Tensor statistics)";
constexpr const char* norm_grad_schema =
    "(Tensor grad, Tensor? grad_sum, Tensor sum, Tensor weight, Tensor? bias, Tensor statistics, "
    "ScalarType? branch, Tensor? keep, float rate, bool again, ScalarType? of_branch) -> (Tensor "
    "grad_x, Tensor grad_branch, Tensor grad_weight, Tensor grad_bias, Tensor y, Tensor total)";

// Two names for one kernel: who counts by names tells them apart.
TORCH_LIBRARY_FRAGMENT(braid, library) {
  for (const char* name : {"layer_norm", "rms_norm"}) {
    library.def((std::string(name) + norm_schema).c_str());
    library.def((std::string(name) + "_grad" + norm_grad_schema).c_str());
  }
}
TORCH_LIBRARY_IMPL(braid, CPU, library) {
  for (const char* name : {"layer_norm", "rms_norm"}) {
    library.impl(name, &norm_cpu_op);
    library.impl((std::string(name) + "_grad").c_str(), &norm_grad_cpu_op);
  }
}
TORCH_LIBRARY_IMPL(braid, Meta, library) {
  for (const char* name : {"layer_norm", "rms_norm"}) {
    library.impl(name, &norm_meta);
    library.impl((std::string(name) + "_grad").c_str(), &norm_grad_meta);
  }
}

using NormOp = NormForward(const at::Tensor&, MaybeTensor, MaybeTensor, double, const at::Tensor&,
                           MaybeTensor, double, c10::ScalarType, int64_t);
using NormGradOp = NormGrads(const at::Tensor&, MaybeTensor, const at::Tensor&, const at::Tensor&,
                             MaybeTensor, const at::Tensor&, std::optional<c10::ScalarType>,
                             MaybeTensor, double, bool, std::optional<c10::ScalarType>);

template <class Signature>
c10::TypedOperatorHandle<Signature> norm_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

std::optional<at::Tensor> if_defined(const at::Tensor& x) {
  return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
}

NormForward run_norm(const at::Tensor& x, const Branch& branch, const at::Tensor& weight,
                     MaybeTensor bias, const NormOptions& options) {
  static const auto layer = norm_operator<NormOp>("braid::layer_norm");
  static const auto rms = norm_operator<NormOp>("braid::rms_norm");
  return (bias ? layer : rms)
      .call(x, if_defined(branch.x), if_defined(branch.keep), branch.rate, weight, bias,
            options.eps, options.dtype.value_or(x.scalar_type()),
            options.lanes == 0 ? norm_width(x) : options.lanes);
}

// What of the results is wanted: y alone, or the sum (x itself without a branch), too.
enum class NormGives : uint8_t { y, sum_and_y };

// Next edges: x, weight, bias, branch, then weights that wait for y.
class NormNode final : public AgainNode {
 public:
  NormNode(const variable_list& kept, NormGives gives)
      : AgainNode(kept, gives == NormGives::y ? 0 : 1) {}

  std::string name() const override { return "braid::norm"; }

  std::optional<c10::ScalarType> branch = {};
  int64_t zeros = 0;     // of a row of the branch, behind its numbers
  bool dropped = false;  // samples of the branch: which ones is kept last
  double rate = 0;

 private:
  variable_list apply(variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    variable_list result(num_outputs());
    const variable_list saved = kept();
    const at::Tensor grad_sum = grads.size() == 2 ? grads[0] : at::Tensor();
    if (!grads.back().defined()) {  // nobody used y
      result[0] = grad_sum;
      if (branch && grad_sum.defined()) result[3] = without_y(grad_sum, saved);
      return result;
    }
    SumTaker* taker = branch && is_centred(saved) ? SumTaker::behind(next_edge(3)) : nullptr;
    at::Tensor other, y, total;
    std::tie(result[0], other, result[1], result[2], y, total) =
        gradients(grads.back(), grad_sum, saved, taker);
    if (branch) result[3] = other.defined() ? other : result[0];
    if (taker != nullptr) taker->give_sum(result[3], total);
    grads.clear();
    if (y.defined()) give(y, result);
    return result;
  }

  at::Tensor without_y(const at::Tensor& grad_sum, const variable_list& saved) const {
    Branch of_branch(grad_sum.to(*branch));
    if (dropped) of_branch.keep = saved.back();
    of_branch.rate = rate;
    return zeros > 0 ? at::constant_pad_nd(of_branch.value(), {0, zeros}) : of_branch.value();
  }

  // Of sum, weight, statistics, bias, keep.
  static bool is_centred(const variable_list& saved) { return saved[2].size(1) == 2; }

  NormGrads gradients(const at::Tensor& grad, const at::Tensor& grad_sum,
                      const variable_list& saved, const SumTaker* taker) const {
    static const auto layer = norm_operator<NormGradOp>("braid::layer_norm_grad");
    static const auto rms = norm_operator<NormGradOp>("braid::rms_norm_grad");
    const bool centred = is_centred(saved);
    return (centred ? layer : rms)
        .call(grad, if_defined(grad_sum), saved[0], saved[1],
              centred ? std::optional(saved[3]) : std::nullopt, saved[2], branch,
              dropped ? std::optional(saved.back()) : std::nullopt, rate, awaited(),
              taker != nullptr ? std::optional(taker->sum_dtype()) : std::nullopt);
  }
};

variable_list normed(const at::Tensor& x, const Branch& branch, const NormWeights& weights,
                     const NormOptions& options, NormGives gives) {
  const variable_list inputs = {x, weights.weight, weights.bias, branch.x};
  const bool graph = torch::autograd::compute_requires_grad(inputs);
  const at::NoGradGuard no_grad;
  const auto [sum, y, statistics] =
      run_norm(x, branch, weights.weight, if_defined(weights.bias), options);
  variable_list outputs = {y};
  if (gives == NormGives::sum_and_y) outputs = {branch.defined() ? sum : x, y};
  if (!graph) return outputs;
  variable_list kept = {branch.defined() ? sum : x, weights.weight, statistics};
  if (weights.bias.defined()) kept.push_back(weights.bias);
  if (branch.keep.defined()) kept.push_back(branch.keep);
  const std::shared_ptr<NormNode> node(new NormNode(kept, gives), torch::autograd::deleteNode);
  if (branch.defined()) {
    node->branch = branch.x.scalar_type();
    node->zeros = norm_width(branch.x) - norm_width(x);
    node->dropped = branch.keep.defined();
    node->rate = branch.rate;
  }
  if (outputs.size() == 2) outputs[0] = outputs[0].variable_data();
  set_graph(node, inputs, outputs);
  return outputs;
}

}  // namespace

at::Tensor norm_rows(const at::Tensor& x, const NormWeights& weights, const NormOptions& options) {
  return normed(x, {}, weights, options, NormGives::y)[0];
}

NormOfSum add_norm_rows(const at::Tensor& x, const Branch& branch, const NormWeights& weights,
                        const NormOptions& options) {
  const variable_list both = normed(x, branch, weights, options, NormGives::sum_and_y);
  return {both[0], both[1]};
}

}  // namespace braid::kernels
