// SPDX-License-Identifier: BSD-3-Clause
// How a stashed value is written: as it is, or in fewer bits.
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/memory/stash.h"

namespace braid::memory {

enum class Code : uint8_t { as_is, bf16, int8, bits };

Code code_of(const at::Tensor& value, const StashOptions& options);

// `flat`: one dimension, contiguous. int8 has two parts: codes and scales.
std::vector<at::Tensor> encode(const at::Tensor& flat, Code code);
at::Tensor decode(const std::vector<at::Tensor>& parts, Code code, c10::ScalarType dtype,
                  int64_t elements);

}  // namespace braid::memory
