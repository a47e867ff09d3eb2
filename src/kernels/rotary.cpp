// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/rotary.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

namespace braid::kernels {
namespace {

// Turns each pair (x[i], x[i + half]) by its angle, or back for direction -1.
at::Tensor turn_pairs(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                      double direction) {
  const int64_t half = cos.size(-1);
  const at::Tensor wide = x.to(cos.scalar_type());
  const at::Tensor turned = at::empty(x.sizes(), wide.options());
  const at::Tensor c = cos.unsqueeze(1),
                   s = sin.unsqueeze(1);  // [seq, 1, width/2]: same for all heads
  const at::Tensor first = wide.narrow(-1, 0, half), second = wide.narrow(-1, half, half);
  at::Tensor to_first = turned.narrow(-1, 0, half), to_second = turned.narrow(-1, half, half);
  at::mul_out(to_first, first, c).addcmul_(second, s, -direction);
  at::mul_out(to_second, second, c).addcmul_(first, s, direction);
  return turned.to(x.scalar_type());
}

struct Rotary : torch::autograd::Function<Rotary> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& cos, const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return turn_pairs(x, cos, sin, 1);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    return {turn_pairs(grads[0], saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  return Rotary::apply(x, cos, sin);
}

}  // namespace braid::kernels
