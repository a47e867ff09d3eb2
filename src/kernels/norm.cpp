// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/norm.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <string>

#include "kernels/meta.h"
#include "kernels/norm_cpu.h"
#include "kernels/norm_parts.h"

namespace braid::kernels {
namespace {

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
NormForward norm_results(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& bias,
                         c10::ScalarType dtype, int64_t lanes) {
  TORCH_CHECK(lanes >= norm_width(x) && (!branch.defined() || norm_width(branch) == lanes),
              "rows of ", norm_width(x), " numbers do not go with lanes of ", lanes);
  at::Tensor sum, y = fresh(sizes_in_lanes(x, lanes), x, dtype);
  if (branch.defined()) sum = fresh(x.sizes(), x);
  const int64_t numbers = bias.defined() ? 2 : 1;
  return {sum, y, fresh({norm_row_count(x), numbers}, x, accumulate_dtype(x.scalar_type()))};
}

NormGrads norm_grad_results(const at::Tensor& grad, const at::Tensor& sum, const at::Tensor& weight,
                            const at::Tensor& statistics, std::optional<c10::ScalarType> branch) {
  at::Tensor grad_x = fresh(sum.sizes(), sum), grad_branch, grad_bias;
  if (branch && (*branch != sum.scalar_type() || norm_width(grad) != norm_width(sum)))
    grad_branch = fresh(grad.sizes(), sum, *branch);
  at::Tensor grad_weight = fresh(weight.sizes(), weight);
  if (statistics.size(1) == 2) grad_bias = fresh(weight.sizes(), weight);
  return {grad_x, grad_branch, grad_weight, grad_bias};
}

at::Tensor in_rows(const at::Tensor& x) {
  return x.defined() ? x.contiguous().view({norm_row_count(x), norm_width(x)}) : x;
}

NormForward norm_cpu_op(const at::Tensor& x, MaybeTensor branch, const at::Tensor& weight,
                        MaybeTensor bias, double eps, c10::ScalarType dtype, int64_t lanes) {
  const at::Tensor other = branch.value_or(at::Tensor()), shift = bias.value_or(at::Tensor());
  const NormForward results = norm_results(x, other, shift, dtype, lanes);
  const auto& [sum, y, statistics] = results;
  if (x.numel() > 0)
    norm_on_cpu({in_rows(x), in_rows(other), weight.contiguous(),
                 shift.defined() ? shift.contiguous() : shift, sum, y, statistics, eps});
  return results;
}

NormGrads norm_grad_cpu_op(const at::Tensor& grad, MaybeTensor grad_sum, const at::Tensor& sum,
                           const at::Tensor& weight, const at::Tensor& statistics,
                           std::optional<c10::ScalarType> branch) {
  const NormGrads results = norm_grad_results(grad, sum, weight, statistics, branch);
  const auto& [grad_x, grad_branch, grad_weight, grad_bias] = results;
  norm_grad_on_cpu({in_rows(grad), in_rows(grad_sum.value_or(at::Tensor())),
                    sum.numel() > 0 ? in_rows(sum) : sum.view({0, weight.numel()}),
                    weight.contiguous(), statistics, grad_x, grad_branch, grad_weight, grad_bias});
  return results;
}

// Kernels read rows that lie together.
void take_rows(Scratch& copies, const at::Tensor& x) {
  if (x.defined() && !x.is_contiguous()) copies.take(bytes_of(x));
}

NormForward norm_meta(const at::Tensor& x, MaybeTensor branch, const at::Tensor&, MaybeTensor bias,
                      double, c10::ScalarType dtype, int64_t lanes) {
  const at::Tensor other = branch.value_or(at::Tensor());
  NormForward results = norm_results(x, other, bias.value_or(at::Tensor()), dtype, lanes);
  Scratch copies(x);
  for (const at::Tensor& read : {x, other}) take_rows(copies, read);
  return results;
}

NormGrads norm_grad_meta(const at::Tensor& grad, MaybeTensor grad_sum, const at::Tensor& sum,
                         const at::Tensor& weight, const at::Tensor& statistics,
                         std::optional<c10::ScalarType> branch) {
  NormGrads results = norm_grad_results(grad, sum, weight, statistics, branch);
  Scratch copies(sum);
  for (const at::Tensor& read : {grad, grad_sum.value_or(at::Tensor()), sum})
    take_rows(copies, read);
  if (dry_on(c10::kCUDA) && sum.numel() > 0)
    copies.take(norm_parts(norm_row_count(sum)) * statistics.size(1) * norm_width(sum) *
                static_cast<int64_t>(statistics.element_size()));
  return results;
}

constexpr const char* norm_schema =
    "(Tensor x, Tensor? branch, Tensor weight, Tensor? bias, float eps, ScalarType dtype, int "
    "lanes) "
    "-> (Tensor sum, Tensor y, Tensor statistics)";
constexpr const char* norm_grad_schema =
    "(Tensor grad, Tensor? grad_sum, Tensor sum, Tensor weight, Tensor statistics, "
    "ScalarType? branch) -> (Tensor grad_x, Tensor grad_branch, Tensor grad_weight, "
    "Tensor grad_bias)";

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

using NormOp = NormForward(const at::Tensor&, MaybeTensor, const at::Tensor&, MaybeTensor, double,
                           c10::ScalarType, int64_t);
using NormGradOp = NormGrads(const at::Tensor&, MaybeTensor, const at::Tensor&, const at::Tensor&,
                             const at::Tensor&, std::optional<c10::ScalarType>);

template <class Signature>
c10::TypedOperatorHandle<Signature> norm_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

std::optional<at::Tensor> if_defined(const at::Tensor& x) {
  return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
}

NormForward run_norm(const at::Tensor& x, MaybeTensor branch, const at::Tensor& weight,
                     MaybeTensor bias, const NormOptions& options) {
  static const auto layer = norm_operator<NormOp>("braid::layer_norm");
  static const auto rms = norm_operator<NormOp>("braid::rms_norm");
  return (bias ? layer : rms)
      .call(x, branch, weight, bias, options.eps, options.dtype.value_or(x.scalar_type()),
            options.lanes == 0 ? norm_width(x) : options.lanes);
}

NormGrads run_norm_grad(const at::Tensor& grad, const at::Tensor& grad_sum,
                        const torch::autograd::variable_list& saved,
                        std::optional<c10::ScalarType> branch) {
  static const auto layer = norm_operator<NormGradOp>("braid::layer_norm_grad");
  static const auto rms = norm_operator<NormGradOp>("braid::rms_norm_grad");
  return (saved[2].size(1) == 2 ? layer : rms)
      .call(grad, if_defined(grad_sum), saved[0], saved[1], saved[2], branch);
}

// What of the results is wanted: y alone, or the sum (x itself without a branch), too.
enum class NormGives : uint8_t { y, sum_and_y };

struct Norm : torch::autograd::Function<Norm> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& x, const at::Tensor& weight,
                                                MaybeTensor bias, MaybeTensor branch,
                                                const NormOptions& options, NormGives gives) {
    const auto [sum, y, statistics] = run_norm(x, branch, weight, bias, options);
    context->set_materialize_grads(false);
    context->save_for_backward({branch ? sum.detach() : x, weight, statistics});
    if (branch) {
      context->saved_data["branch"] = static_cast<int64_t>(branch->scalar_type());
      context->saved_data["zeros"] = norm_width(*branch) - norm_width(x);
    }
    if (gives == NormGives::y) return {y};
    return {branch ? sum : x, y};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor grad_sum = grads.size() == 2 ? grads[0] : at::Tensor();
    std::optional<c10::ScalarType> branch;
    if (const auto kept = context->saved_data.find("branch"); kept != context->saved_data.end())
      branch = static_cast<c10::ScalarType>(kept->second.toInt());
    if (!grads.back().defined()) {  // nobody used y
      at::Tensor of_branch = branch && grad_sum.defined() ? grad_sum.to(*branch) : at::Tensor();
      if (of_branch.defined() && context->saved_data["zeros"].toInt() > 0)
        of_branch = at::constant_pad_nd(of_branch, {0, context->saved_data["zeros"].toInt()});
      return {grad_sum, {}, {}, of_branch, {}, {}};
    }
    const auto [grad_x, other, grad_weight, grad_bias] =
        run_norm_grad(grads.back(), grad_sum, saved, branch);
    const at::Tensor of_branch = other.defined() ? other : branch ? grad_x : at::Tensor();
    return {grad_x, grad_weight, grad_bias, of_branch, {}, {}};
  }
};

}  // namespace

at::Tensor norm_rows(const at::Tensor& x, const NormWeights& weights, const NormOptions& options) {
  return Norm::apply(x, weights.weight, if_defined(weights.bias), std::optional<at::Tensor>(),
                     options, NormGives::y)[0];
}

NormOfSum add_norm_rows(const at::Tensor& x, const at::Tensor& branch, const NormWeights& weights,
                        const NormOptions& options) {
  const auto both = Norm::apply(x, weights.weight, if_defined(weights.bias), if_defined(branch),
                                options, NormGives::sum_and_y);
  return {both[0], both[1]};
}

}  // namespace braid::kernels
