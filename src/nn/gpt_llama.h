// SPDX-License-Identifier: BSD-3-Clause
// What GPT and Llama share: the check of their input, the stack of blocks, and a head that may
// borrow the embedding.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/nn/layers.h"
#include "braid/nn/model.h"

namespace braid::nn {

void check_tokens(const at::Tensor& tokens,
                  int64_t longest);  // DataError unless integers [batch, seq <= longest]

// Blocks named 0, 1, ... one after the other.
template <class Block>
struct Blocks : Layer {
  template <class Options>
  Blocks(Scope where, const Options& o) : Layer(std::move(where)) {
    for (int64_t i = 0; i < o.layers; ++i) all.push_back(child<Block>(std::to_string(i), o));
  }

  template <class With>  // the pass, or the rotary tables
  at::Tensor forward(at::Tensor x, const Pass& pass, const With& with) const {
    for (const auto& block : all)
      x = run_block(pass.blocks, block->path(), x,
                    [&](const at::Tensor& in) { return block->forward(in, with); });
    return x;
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    for (const auto& block : all) block->rows(table, tokens);
  }

  std::vector<std::shared_ptr<Block>> all;
};

// x [batch, seq, width] -> scores [batch, seq, vocabulary]; `head` is null if tied.
at::Tensor token_scores(const Linear* head, const Embedding& embedding, const at::Tensor& x);
LayerRow head_row(const Linear* head, const Embedding& embedding, int64_t tokens);

}  // namespace braid::nn
