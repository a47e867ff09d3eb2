// SPDX-License-Identifier: BSD-3-Clause
// Values in fewer bits: a bit for a truth value, a byte for a number. What waits for the backward
// pass takes less memory; relu needs one bit an element there.
//
//   at::Tensor bits = kernels::pack_bits(mask);              // [elements / 8], rounded up
//   at::Tensor same = kernels::unpack_bits(bits, mask.sizes());
//   y = kernels::relu(x, /*packed=*/true);                   // keeps bits, not y
//
// All of them are operators (braid::pack_bits, ...) with kernels for CPU and CUDA of equal results.
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

inline constexpr int64_t block_elements = 256;  // that share one scale

// Bit i is false where element i, in the order of the sizes, is 0, false or negative.
at::Tensor pack_bits(const at::Tensor& values);
at::Tensor unpack_bits(const at::Tensor& bits, at::IntArrayRef sizes);

// A byte an element and a float for each 256 of them: value = code x scale, scale = largest
// magnitude / 127, so that the error is at most half a scale. A block with a value that is not
// finite becomes NaN as a whole.
struct Blocks {
  at::Tensor codes;   // int8 [elements]
  at::Tensor scales;  // float [elements / 256], rounded up
};
Blocks quantize_blocks(const at::Tensor& values);
at::Tensor dequantize_blocks(const Blocks& blocks, c10::ScalarType dtype);  // [elements]

// With `packed` the backward pass keeps a bit an element, else what torch keeps. Same gradients.
at::Tensor relu(const at::Tensor& x, bool packed);
at::Tensor leaky_relu(const at::Tensor& x, double slope, bool packed);

}  // namespace braid::kernels
