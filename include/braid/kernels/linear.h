// SPDX-License-Identifier: BSD-3-Clause
// Linear layers as one node of the backward pass. It takes parameters as they are: with fp32
// parameters and a bf16 input the products are those of bf16, and the gradients of the parameters
// come in fp32 out of the product, not rounded on the way.
//
//   y = kernels::linears({kernels::Activation::gelu, h}, {{w, b}})[0];   // keeps h, not gelu(h)
//   auto qkv = kernels::linears(x, {{wq, bq}, {wk, bk}, {wv, bv}});      // x kept once
#pragma once
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/precision.h"
#include "braid/kernels/activation.h"
#include "braid/kernels/deferred.h"

namespace braid::kernels {

struct LinearWeights {
  at::Tensor weight;     // [out, in], or a transposed view of [in, out]
  at::Tensor bias = {};  // [out] or undefined
};

struct ProductOptions {
  // Active: the gradients of weights wait there (kernels/deferred.h), and fp8 is off.
  std::shared_ptr<Deferred> later = {};
  // Products of 8-bit floats for bf16 inputs; sizes are multiples of 16.
  Fp8 fp8 = Fp8::off;
};

// a W^T + b of each layer, a [..., in] the activation, in the dtype of the input. Layers whose
// weights are cast become one product, the outputs parts of one tensor.
std::vector<at::Tensor> linears(Activated input, const std::vector<LinearWeights>& layers,
                                const ProductOptions& options = {});

// One layer and the activation behind it, for the next one. gelu_tanh in 16 bits comes out of the
// same product, of sums that are not rounded yet.
//
//   kernels::Activated h = kernels::linear_to(x, {w1, b1}, kernels::Activation::gelu_tanh);
//   y = kernels::linears(std::move(h), {{w2}})[0];
Activated linear_to(const at::Tensor& x, const LinearWeights& layer, Activation then,
                    const ProductOptions& options = {});

}  // namespace braid::kernels
