// SPDX-License-Identifier: BSD-3-Clause
// Dropout whose mask depends on (key, global position) alone: the same on CPU and GPU, and however
// a batch is split.
//
//   RandomKey key = random_key(seed, "blocks.0.mlp").with(step);
//   y = kernels::dropout(x, {.rate = 0.1, .key = key, .first_sample = 32});   // x: samples 32 ...
//   of the global batch
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "braid/core/rng.h"

namespace braid::kernels {

struct Drop {
  double rate = 0;  // share of elements set to 0; the others are divided by 1 - rate
  RandomKey key = {};
  int64_t first_sample = 0;  // place of x[0] in the global batch
};

at::Tensor dropout(const at::Tensor& x, Drop drop);    // an element each; x is [batch, ...]
at::Tensor drop_path(const at::Tensor& x, Drop drop);  // whole samples

// Element i is true with probability 1 - rate, decided by (key, first + i).
at::Tensor keep_mask(const at::Tensor& like, double rate, RandomKey key, int64_t first);

}  // namespace braid::kernels
