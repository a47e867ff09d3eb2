// SPDX-License-Identifier: BSD-3-Clause
// The operators of kernels/masks.h in plain tensor operations, for devices without kernels of their
// own. Equal to the CPU kernels to the bit, which a test says.
#pragma once
#include <tuple>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

at::Tensor pack_bits_by_ops(const at::Tensor& values);
at::Tensor unpack_bits_by_ops(const at::Tensor& bits, at::IntArrayRef sizes);
std::tuple<at::Tensor, at::Tensor> quantize_blocks_by_ops(const at::Tensor& values);
at::Tensor dequantize_blocks_by_ops(const at::Tensor& codes, const at::Tensor& scales,
                                    c10::ScalarType dtype);
at::Tensor gate_by_bits_by_ops(const at::Tensor& grad, const at::Tensor& bits, double slope);

}  // namespace braid::kernels
