// SPDX-License-Identifier: BSD-3-Clause
// Losses: means over samples (relative L2, L1, MSE) or over counted tokens and labels
// (cross-entropy). Computed in fp32 or fp64.
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::nn {

enum class Loss { relative_l2, l1, mse, cross_entropy };

inline constexpr int64_t ignored_target = -100;  // cross-entropy leaves these out of sum and count

// relative_l2: mean over samples of ||p-t|| / ||t||.  l1, mse: mean over all elements.
// cross_entropy: output [..., classes], target [...] int64; mean over targets that are not ignored.
at::Tensor loss(Loss kind, const at::Tensor& output, const at::Tensor& target);
// A value a sample, [batch] (cross-entropy: sum over the sample's counted targets): for evaluation
// with padding.
at::Tensor loss_by_sample(Loss kind, const at::Tensor& output, const at::Tensor& target);

}  // namespace braid::nn
