// SPDX-License-Identifier: BSD-3-Clause
// braid::linear_gelu: by one product with the activation at its end, or by a product and a pass
// over its result, whichever is faster.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/activation.h"
#include "cuda/product_choice.h"
#include "cuda/products.h"

namespace braid::cuda {
namespace {

using at::Tensor;

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
  const Product product{.left = x, .right = right, .out = value, .added = bias, .before = h};
  if (products_are_tuned() && fits(product))
    compute(product, in_two_passes);
  else
    in_two_passes();
  return {h, value};
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) { library.impl("linear_gelu", &linear_gelu); }

}  // namespace
}  // namespace braid::cuda
