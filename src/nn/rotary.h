// SPDX-License-Identifier: BSD-3-Clause
// Cosines and sines of rotary positions, made once for a sequence length, device and dtype.
//
//   const auto& turn = tables.at(tokens, device, c10::kFloat);   // turn.cos, turn.sin [tokens,
//   head width / 2]
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "braid/kernels/rotary.h"
#include "braid/nn/options.h"

namespace braid::nn {

// Turns a position: theta^(-2i/width) a token for pair i, slowed for long waves by the Llama-3
// rule.
at::Tensor rotary_frequencies(const LlamaOptions& options,
                              at::TensorOptions where);  // [head width / 2]

class RotaryTables {
 public:
  explicit RotaryTables(const LlamaOptions& options) : options_(options) {}
  const kernels::Turn& at(int64_t tokens, c10::Device device, c10::ScalarType dtype);

 private:
  LlamaOptions options_;
  kernels::Turn last_;  // a training run has one length, and evaluation at another makes it again
};

}  // namespace braid::nn
