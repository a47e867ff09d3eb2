// SPDX-License-Identifier: BSD-3-Clause
// Zeros between numbers, so that rows begin where tensor cores read them at full speed: a dimension
// comes in groups of `unit` numbers, each followed by zeros up to `lanes`. Weights get them when
// they are cast, activations carry them from layer to layer, results are as without.
//
//   // 180 in 192
//   const kernels::Lanes wide = kernels::lanes_of_width(180, at::kBFloat16, at::kCUDA);
//   w = kernels::pad_lanes(weight, {.rows = wide, .columns = wide}, at::kBFloat16);
//   x = kernels::add_trimmed(x, at::linear(y, w));   // [..., 180] + the first 180 of [..., 192]
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

struct Lanes {
  int64_t unit = 1, lanes = 1;
  bool padded() const { return unit != lanes; }
  int64_t of(int64_t size) const { return size / unit * lanes; }
};

// The rule, of dtype and kind of device alone: rows of 16-bit numbers on CUDA are multiples of 16
// bytes. A width that is not one goes up to the next multiple of 64, a head to one of 16.
Lanes lanes_of_width(int64_t width, c10::ScalarType compute, c10::DeviceType device);
Lanes lanes_of_head(int64_t head, c10::ScalarType compute, c10::DeviceType device);

struct WeightLanes {
  Lanes rows = {}, columns = {};
  bool padded() const { return rows.padded() || columns.padded(); }
};

// weight [rows, columns] or of a convolution, [rows, columns, height, width]: that one comes in
// channels-last order. Cast to `dtype`; not padded: the cast alone.
at::Tensor pad_lanes(const at::Tensor& weight, const WeightLanes& lanes, c10::ScalarType dtype);

// The last dimension: of a bias, of activations.
at::Tensor pad_last(const at::Tensor& x, const Lanes& lanes, c10::ScalarType dtype);
// Without the zeros.
at::Tensor trim_last(const at::Tensor& x, const Lanes& lanes, c10::ScalarType dtype);
// x + branch without the zeros of a last dimension of one unit. In the dtype of x.
at::Tensor add_trimmed(const at::Tensor& x, const at::Tensor& branch);

}  // namespace braid::kernels
