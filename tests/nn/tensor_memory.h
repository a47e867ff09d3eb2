// SPDX-License-Identifier: BSD-3-Clause
// What a layer of a GPT keeps for the backward pass on one rank of many, by dry runs of the real
// model.
#pragma once
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <vector>

#include "braid/memory/instruments.h"
#include "braid/memory/ledger.h"
#include "braid/memory/recompute.h"
#include "nn/tensor_spread.h"

namespace braid::nn::tensor_memory {  // names of its own, also in a unity build

struct Sizes {
  int64_t h, s, a, b;
};

inline const std::vector<Sizes> all_sizes = {{64, 32, 4, 3}, {768, 512, 12, 4}, {1024, 256, 16, 1}};

// Bytes that wait for the backward pass now.
inline int64_t waiting_bytes(const memory::Ledger& ledger) {
  const memory::KindBytes bytes = ledger.timeline(memory::cuda()).back().by_kind;
  return bytes[static_cast<size_t>(MemoryKind::activation)] +
         bytes[static_cast<size_t>(MemoryKind::communication)];
}

// Bytes that live when the forward pass is done and the backward pass has not begun.
inline int64_t activations(const Sizes& z, int64_t layers, const test::Spread& spread,
                           memory::Again again) {
  const c10::Device gpu(c10::kCUDA, 0);
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger, .dry = true});
  Build build =
      test::build_on(layout_of(spread, comm::Group(comm::dry(1, spread.ranks))), "bf16_params");
  build.device = gpu;
  const auto model = make_gpt({.vocabulary = 96,
                               .sequence = z.s,
                               .layers = layers,
                               .heads = z.a,
                               .width = z.h,
                               .dropout = 0.1},
                              build);
  for (const Param& param : model->params()) mark(param.tensor, MemoryKind::parameter);
  const at::Tensor tokens = at::empty({z.b, z.s}, at::TensorOptions(at::kLong).device(gpu));
  mark(tokens, MemoryKind::input);
  memory::Recompute segments({.what = again});
  Pass pass = test::training_pass;
  if (again != memory::Again::none) pass.segments = &segments;
  const at::Tensor output = model->forward(tokens, pass);
  return waiting_bytes(ledger);
}

inline int64_t of_a_layer(const Sizes& z, const test::Spread& spread,
                          memory::Again again = memory::Again::none) {
  return activations(z, 3, spread, again) - activations(z, 2, spread, again);
}

// What the formulas leave out of two norms: mean and 1/std in fp32, of the tokens that a rank has
// there.
inline int64_t of_norms(const Sizes& z, int64_t tokens) { return 2 * 2 * 4 * tokens * z.b; }

}  // namespace braid::nn::tensor_memory
