// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/norm.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/rms_norm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "kernels/dtype.h"

namespace braid::kernels {
namespace {

// The composed operator of torch keeps four tensors of the input's size, this one keeps the input.
struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, double eps) {
    const at::Tensor wide = x.to(accumulate_dtype(x.scalar_type()));
    const double width = static_cast<double>(x.size(-1));
    const at::Tensor scale =
        at::linalg_vector_norm(wide, 2, {-1}, true).square_().div_(width).add_(eps).rsqrt_();
    context->save_for_backward({x, weight, scale});
    return wide.mul(scale).mul_(weight.to(accumulate_dtype(x.scalar_type()))).to(x.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
    const auto dtype = accumulate_dtype(x.scalar_type());
    const at::Tensor unit = x.to(dtype).mul(scale);
    at::Tensor inner = grads[0].to(dtype).mul(unit);
    const at::Tensor grad_weight = inner.flatten(0, -2).sum(0).to(weight.scalar_type());
    const at::Tensor wide_weight = weight.to(dtype);
    const at::Tensor along = inner.mul_(wide_weight).mean(-1, true);
    at::Tensor grad_x = grads[0].to(dtype).mul(wide_weight).addcmul_(unit, along, -1).mul_(scale);
    return {grad_x.to(x.scalar_type()), grad_weight, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (x.is_cuda() && x.scalar_type() == weight.scalar_type())  // one fused kernel there
    return at::rms_norm(x, {x.size(-1)}, weight, eps);
  return RmsNorm::apply(x, weight, eps);
}

}  // namespace braid::kernels
