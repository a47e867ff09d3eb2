// SPDX-License-Identifier: BSD-3-Clause
// Cross-entropy that keeps the scores and one number a row: neither a wide copy of the scores nor
// their log-softmax is ever there.
//
//   at::Tensor each = kernels::cross_entropy(scores, target, -100);   // [rows], fp32 or fp64
//
// Sums are fp32 for 16-bit scores. The gradient has the dtype of the scores.
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

// scores [rows, classes], target [rows] int64; 0 where the target is `ignored`.
at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& target, int64_t ignored);

// Its parts, for who holds some of the classes: first, first + 1, ... None goes through autograd.
at::Tensor row_logsumexp(const at::Tensor& scores);  // [rows]
// The score of the target where it is one of these classes, else 0. [rows]
at::Tensor target_scores(const at::Tensor& scores, const at::Tensor& target, int64_t first);
// (exp(scores - logsumexp) - [class is the target]) * grad, `logsumexp` of all classes.
at::Tensor cross_entropy_grad(const at::Tensor& grad, const at::Tensor& scores,
                              const at::Tensor& logsumexp, const at::Tensor& target, int64_t first);

}  // namespace braid::kernels
