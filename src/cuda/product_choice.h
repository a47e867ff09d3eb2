// SPDX-License-Identifier: BSD-3-Clause
// One matrix product as cuBLASLt sees it, and the fastest way to compute it: the algorithms that
// its heuristics offer and torch's own way are timed at the first use of a shape, the best is
// remembered.
//
//   Product product{.left = a, .right = b, .out = out};
//   if (!fits(product)) return at::cuda::mm_out(out, a, b);
//   compute(product, [&] { at::cuda::mm_out(out, a, b); });
#pragma once
#include <functional>

#include <ATen/core/Tensor.h>

namespace braid::cuda {

struct Product {
  at::Tensor left, right;  // [m, k], [k, n]
  at::Tensor out;          // [m, n]
  at::Tensor added = {};   // [n]: a bias. [m, n]: added `beta` times; may be `out` itself
  double alpha = 1, beta = 1;
  // With a bias: where left right + bias goes, [m, n]. Then `out` is gelu_tanh of it.
  at::Tensor before = {};
};

// Whether it is worth a choice and cuBLASLt can take it as it lies in memory.
bool fits(const Product& product);
// `by_torch` computes the same. Under deterministic algorithms nothing is timed: the heuristics'
// first algorithm is taken in every run, with `before` torch's way; neither is while a graph is
// captured.
void compute(const Product& product, const std::function<void()>& by_torch);

}  // namespace braid::cuda
