// SPDX-License-Identifier: BSD-3-Clause
// Products of rows that are sorted by group with the weight of their group (the experts of a
// mixture), and the moves that bring rows there and back. No shape depends on values, so nothing
// is read on the host but by the products of devices without a fused kernel.
//
//   at::Tensor slots = kernels::to_slots(x, map);                        // rows of experts
//   at::Tensor y = kernels::grouped_product(slots, {.weight = w, .offsets = offsets});
//   at::Tensor out = kernels::from_slots(y, gates, map);                 // rows of tokens
#pragma once
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "braid/kernels/deferred.h"

namespace braid::kernels {

struct Groups {
  at::Tensor weight;        // [groups, in, out]
  at::Tensor offsets = {};  // [groups] int32: where the rows of each group end
  // Whose gradients of weights come later; null: they come with those of the input.
  std::shared_ptr<Deferred> later = {};
};

// With offsets: x [rows, in] -> [rows, out]; what rows behind the last offset get is undefined.
// Without: every group has as many, x [groups, rows, in] -> [groups, rows, out].
// A group without rows has a gradient of zeros.
at::Tensor grouped_product(const at::Tensor& x, const Groups& groups);

// Which row of tokens stands in which slot of experts. On a side where a row stands for itself
// there is a number out of range for "none": `slots` in `slot`, `tokens` in `token`.
struct SlotMap {
  int64_t tokens = 0, slots = 0;
  at::Tensor token = {};  // [slots]: the row of the token that stands there
  at::Tensor slot = {};   // [tokens, choices]: where each choice of a token stands; undefined: a
                          // token may stand in any number of slots
  bool full = false;      // no slot is empty, and no choice has none
};

// x [tokens, width] -> [slots, width]: zeros where nobody stands.
at::Tensor to_slots(const at::Tensor& x, const SlotMap& map);
// y [slots, width] -> [tokens, width]: the sum of what stands for a token, each times its gate.
// gates: [tokens, choices], or [slots] for a map without `slot`.
at::Tensor from_slots(const at::Tensor& y, const at::Tensor& gates, const SlotMap& map);

// Row order[i] of x becomes row i; `inverse` is the way back.
at::Tensor reordered(const at::Tensor& x, const at::Tensor& order, const at::Tensor& inverse);

}  // namespace braid::kernels
