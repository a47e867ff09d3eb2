// SPDX-License-Identifier: BSD-3-Clause
// Losses of what is spread over ranks: values are the same on all of them, and the gradient of the
// part that a rank holds is that of one process.
#pragma once
#include <ATen/core/Tensor.h>

#include "braid/nn/loss.h"

namespace braid::nn {

// scores [rows, those of this rank], target [rows] -> [rows], 0 where it is ignored. Ranks tell
// each other a few numbers a row, never scores.
at::Tensor split_cross_entropy(const at::Tensor& scores, const at::Tensor& target,
                               const LossShare& share);
// ||x|| of each sample whose parts the ranks hold: [batch].
at::Tensor split_norms(const at::Tensor& x, const comm::Group& context);
at::Tensor count_over(const at::Tensor& count, const comm::Group& context);  // sum, no gradient

}  // namespace braid::nn
