// SPDX-License-Identifier: BSD-3-Clause
// Meta kernels of matrix products in another dtype, of fp8 and of groups.
#include <optional>

#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

using MaybeDtype = std::optional<c10::ScalarType>;

at::Tensor meta_scaled_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor&,
                          const at::Tensor&, MaybeTensor, MaybeTensor, MaybeDtype dtype, bool) {
  return fresh({a.size(0), b.size(1)}, a, dtype.value_or(a.scalar_type()));
}

at::Tensor meta_mm_in(const at::Tensor& a, const at::Tensor& b, c10::ScalarType dtype) {
  return fresh({a.size(0), b.size(1)}, a, dtype);
}

// Groups lie along a third dimension, or along one of the two others as `offsets` tells.
std::vector<int64_t> grouped_sizes(const at::Tensor& a, const at::Tensor& b, MaybeTensor offsets) {
  if (a.dim() == 2 && b.dim() == 2) return {offsets->size(0), a.size(0), b.size(1)};
  if (a.dim() == 2) return {a.size(0), b.size(2)};
  if (b.dim() == 2) return {a.size(1), b.size(1)};
  return {a.size(0), a.size(1), b.size(2)};
}

// Rows of the result begin at multiples of 16 bytes.
at::Tensor grouped_result(const at::Tensor& a, const at::Tensor& b, MaybeTensor offsets,
                          c10::ScalarType dtype) {
  const std::vector<int64_t> sizes = grouped_sizes(a, b, offsets);
  const int64_t step = 16 / static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t row = rounded_up(sizes.back(), step);
  std::vector<int64_t> strides = {row, 1};
  if (sizes.size() == 3) strides.insert(strides.begin(), sizes[1] * row);
  return at::empty_strided(sizes, strides, a.options().dtype(dtype));
}

at::Tensor meta_grouped_mm(const at::Tensor& a, const at::Tensor& b, MaybeTensor offsets,
                           MaybeTensor, MaybeDtype dtype) {
  return grouped_result(a, b, offsets, dtype.value_or(a.scalar_type()));
}

at::Tensor meta_scaled_grouped_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor&,
                                  const at::Tensor&, MaybeTensor offsets, MaybeTensor, MaybeTensor,
                                  MaybeDtype dtype, bool) {
  return grouped_result(a, b, offsets, dtype.value_or(c10::kBFloat16));
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("mm.dtype", &meta_mm_in);
  library.impl("_scaled_mm", &meta_scaled_mm);
  library.impl("_grouped_mm", &meta_grouped_mm);
  library.impl("_scaled_grouped_mm", &meta_scaled_grouped_mm);
}

}  // namespace
}  // namespace braid::kernels
