// SPDX-License-Identifier: BSD-3-Clause
// braid::linear_gelu and gelu_linear_grad: by one product with the activation, or its gradient, at
// its end, or by a product and a pass over its result, whichever is faster.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <functional>
#include <optional>
#include <tuple>

#include "cuda/activation.h"
#include "cuda/column_sum.h"
#include "cuda/product_choice.h"
#include "cuda/products.h"

namespace braid::cuda {
namespace {

using at::Tensor;

void compute_or(const Product& product, const OtherWay& other) {
  if (products_are_tuned() && fits(product))
    compute(product, other);
  else
    other.by_torch();
}

std::tuple<Tensor, Tensor> linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  TORCH_CHECK(x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(1), "linear_gelu of ",
              x.sizes(), " and a weight ", weight.sizes());
  const c10::cuda::CUDAGuard guard(x.device());
  const at::AutoDispatchBelowADInplaceOrView below;
  const Tensor right = weight.t();
  Tensor h = at::empty({x.size(0), weight.size(0)}, x.options());
  const Tensor value = at::empty(h.sizes(), h.options());
  const auto in_two_passes = [&] {
    at::addmm_out(h, bias, x, right);  // the fastest one, if products are tuned
    gelu_into(h, value, /*tanh=*/true);
  };
  compute_or({.left = x, .right = right, .out = value, .added = bias, .before = h},
             {.by_torch = in_two_passes});
  return {h, value};
}

std::tuple<Tensor, Tensor> gelu_linear_grad(const Tensor& grad, const Tensor& weight,
                                            const Tensor& h, std::optional<c10::ScalarType> dtype) {
  TORCH_CHECK(grad.dim() == 2 && weight.dim() == 2 && grad.size(1) == weight.size(0),
              "gelu_linear_grad of ", grad.sizes(), " and a weight ", weight.sizes());
  const c10::cuda::CUDAGuard guard(grad.device());
  const at::AutoDispatchBelowADInplaceOrView below;
  Tensor d_h = at::empty({grad.size(0), weight.size(1)}, grad.options()), sum;
  const auto in_two_passes = [&] {
    at::mm_out(d_h, grad, weight);
    sum.reset();
    sum = gelu_grad_into(h, d_h, /*tanh=*/true, dtype);
  };
  const auto add_up = [&] {
    if (!dtype) return;
    sum.reset();
    sum = column_sum(d_h, *dtype);
  };
  compute_or({.left = grad, .right = weight, .out = d_h, .gelu_of = h},
             {.by_torch = in_two_passes, .finish = add_up});
  return {d_h, sum};
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("linear_gelu", &linear_gelu);
  library.impl("gelu_linear_grad", &gelu_linear_grad);
}

}  // namespace
}  // namespace braid::cuda
