// SPDX-License-Identifier: BSD-3-Clause
// Dropout whose mask depends on (key, global position) alone: the same on CPU and GPU, and however
// a batch is split.
//
//   RandomKey key = random_key(seed, "blocks.0.mlp").with(step);
//   // x: samples 32, 33, ... of the global batch
//   y = kernels::dropout(x, {.rate = 0.1, .key = key, .first_sample = 32});
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/param.h"
#include "braid/core/rng.h"

namespace braid::kernels {

// Which part of a dimension x holds, where ranks share it out: tokens, heads, hidden width.
struct DropWindow {
  int64_t dim = 0;
  int64_t whole = 0;               // size of the dimension over all ranks
  std::vector<Range> ranges = {};  // indices of it that x holds, range after range
};

struct Drop {
  double rate = 0;  // share of elements set to 0; the others are divided by 1 - rate
  RandomKey key = {};
  int64_t first_sample = 0;              // place of x[0] in the global batch
  std::vector<DropWindow> windows = {};  // of the dimensions that x does not hold whole
  // int64 scalar on the device: key.with(step) decides, whatever it holds when the mask is made.
  // Undefined: key as it is.
  at::Tensor step = {};
};

at::Tensor dropout(const at::Tensor& x, Drop drop);    // an element each; x is [batch, ...]
at::Tensor drop_path(const at::Tensor& x, Drop drop);  // whole samples

// What is added to a stream, whole samples of it dropped: the norm that adds it does that on the
// way (kernels/norm.h).
struct Branch {
  Branch(at::Tensor what = {}) : x(std::move(what)) {}  // NOLINT: a tensor is one
  at::Tensor x;
  at::Tensor keep = {};  // bool, an element a sample; undefined: all of them
  double rate = 0;       // what is kept is divided by 1 - rate
  bool defined() const { return x.defined(); }
  at::Tensor value() const;
};
Branch drop_branch(const at::Tensor& x, const Drop& drop);  // drop_path, not done yet

// Element i is true with probability 1 - rate, decided by (key, first + i).
at::Tensor keep_mask(const at::Tensor& like, double rate, RandomKey key, int64_t first,
                     const at::Tensor& step = {});
// The part of the mask of a whole batch that `like` [batch, ...] holds.
at::Tensor keep_mask(const at::Tensor& like, const Drop& drop);

}  // namespace braid::kernels
