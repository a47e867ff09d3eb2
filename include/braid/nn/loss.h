// SPDX-License-Identifier: BSD-3-Clause
// Losses: means over samples (relative L2, L1, MSE) or over counted tokens and labels
// (cross-entropy). Computed in fp32 or fp64.
#pragma once
#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"

namespace braid::nn {

enum class Loss { relative_l2, l1, mse, cross_entropy };

inline constexpr int64_t ignored_target = -100;  // cross-entropy leaves these out of sum and count

// What of output and target this rank holds; as it is: all. Values are the same on all ranks of
// both groups, and the gradient of a rank's output is that of one process.
struct LossShare {
  comm::Group context = {};     // tokens or rows of a sample are spread over it
  comm::Group vocabulary = {};  // scores of a token are: rank r has the r-th of even_shares(scores)
  int64_t scores = 0;           // of a token over all ranks of vocabulary
};

// relative_l2: mean over samples of ||p-t|| / ||t||.  l1, mse: mean over all elements.
// cross_entropy: output [..., classes], target [...] int64; mean over targets that are not ignored.
at::Tensor loss(Loss kind, const at::Tensor& output, const at::Tensor& target,
                const LossShare& share = {});
// The mean from the sum of cross-entropies that a model gave by itself (Model::gives_losses).
at::Tensor mean_of_losses(const at::Tensor& sum, const at::Tensor& target,
                          const LossShare& share = {});
// A value a sample, [batch] (cross-entropy: sum over the sample's counted targets): for evaluation
// with padding.
at::Tensor loss_by_sample(Loss kind, const at::Tensor& output, const at::Tensor& target,
                          const LossShare& share = {});

}  // namespace braid::nn
