// SPDX-License-Identifier: BSD-3-Clause
// What GPT and Llama share: the check of their input and the table's line of a head that borrows
// the embedding.
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "braid/nn/model.h"

namespace braid::nn {

void check_tokens(const at::Tensor& tokens,
                  int64_t longest);  // DataError unless integers [batch, seq <= longest]
LayerRow tied_head_row(int64_t width, int64_t vocabulary, int64_t tokens);

}  // namespace braid::nn
