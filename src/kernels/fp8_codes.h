// SPDX-License-Identifier: BSD-3-Clause
// What the CPU and the CUDA kernels of fp8 agree on. Operands are matrices of widths that are
// multiples of 16, with rows in one piece.
#pragma once
#include <cstdint>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace braid::kernels {

constexpr double largest_e4m3 = 448, largest_e5m2 = 57344;
constexpr double smallest_scale = 1e-30;  // of zeros; gradients of single tokens reach 1e-12

inline constexpr double largest_code(bool e5m2) { return e5m2 ? largest_e5m2 : largest_e4m3; }
inline c10::ScalarType code_dtype(bool e5m2) {
  return e5m2 ? c10::kFloat8_e5m2 : c10::kFloat8_e4m3fn;
}

// Parts [rows, width] put together along `dim`: as they lie, and transposed; of no elements where
// not wanted.
inline std::tuple<at::Tensor, at::Tensor> empty_codes(at::TensorList parts, int64_t dim, bool e5m2,
                                                      bool plain, bool turned) {
  int64_t rows = dim == 0 ? 0 : parts[0].size(0), width = dim == 1 ? 0 : parts[0].size(1);
  for (const at::Tensor& part : parts) (dim == 0 ? rows : width) += part.size(dim);
  const auto options = parts[0].options().dtype(code_dtype(e5m2));
  return {at::empty({plain ? rows : 0, width}, options),
          at::empty({turned ? width : 0, rows}, options)};
}

// Parts [rows, width] below each other, and a scale for each row.
inline std::tuple<at::Tensor, at::Tensor> empty_row_codes(at::TensorList parts) {
  at::Tensor codes =
      std::get<0>(empty_codes(parts, /*dim=*/0, /*e5m2=*/false, /*plain=*/true, /*turned=*/false));
  return {codes, at::empty({codes.size(0), 1}, codes.options().dtype(c10::kFloat))};
}

}  // namespace braid::kernels
