// SPDX-License-Identifier: BSD-3-Clause
// Matrices as 8-bit floats with scales: what is multiplied is code * scale. On the CPU products are
// those of the decoded matrices, so that a run can be tried anywhere.
//
//   const kernels::Coded x = kernels::coded({x_rows}, {}), w = kernels::coded({weight}, {});
//   y = kernels::coded_product({x.plain, w.plain.t(), x.scale, w.scale});
#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

struct Coded {
  at::Tensor plain;   // [rows, width]
  at::Tensor turned;  // [width, rows], in one piece
  at::Tensor scale;   // [1, 1], or [rows, 1] for a scale a row
};

struct CodedOptions {
  int64_t dim = 0;        // along which several matrices are put together; they share one scale
  bool e5m2 = false;      // two bits of fraction and a wider range, for gradients; else e4m3
  bool plain = true;      // which copies are wanted
  bool turned = false;    //
  at::Tensor scale = {};  // known from before
};

// One scale for all elements: the largest becomes the largest code.
Coded coded(const std::vector<at::Tensor>& parts, const CodedOptions& options = {});
// Matrices of one width below each other, a scale for each row; e4m3.
Coded coded_rows(const std::vector<at::Tensor>& parts);

// a [m, k] b [k, n], b the transposed view of a matrix [n, k]. With scales of rows `scale_b` is
// [1, n]. The result in `dtype`; `bias` [n] in bf16.
struct CodedFactors {
  at::Tensor a, b, scale_a, scale_b;
};
struct CodedResult {
  c10::ScalarType dtype = c10::kBFloat16;
  bool fast = true;  // sums with fewer bits between the tensor cores' steps
  at::Tensor bias = {};
};
at::Tensor coded_product(const CodedFactors& factors, const CodedResult& result = {});

}  // namespace braid::kernels
