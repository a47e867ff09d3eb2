// SPDX-License-Identifier: BSD-3-Clause
// Included by the files that are compiled for some instructions: all that is here carries them in
// its name, so that no other file gets it from the linker.
#pragma once
#include "kernels/small_product.h"

namespace braid::kernels {

constexpr int64_t vector_bytes(Instructions of) {
  return of == Instructions::avx512 ? 64 : of == Instructions::avx2 ? 32 : 16;
}

template <Instructions with, class W>
struct VectorWith {
  typedef W type __attribute__((vector_size(vector_bytes(with))));
};

// So many rows and vectors of the result stay in registers.
template <Instructions with, class W, int rows, int vectors>
void small_block(const SmallFactors<W>& f, const W* a, const W* b, int64_t inner, W* out,
                 int64_t out_row) {
  using Vector = typename VectorWith<with, W>::type;
  constexpr int64_t lanes = sizeof(Vector) / sizeof(W);
  Vector sums[rows][vectors] = {};
  for (int64_t k = 0; k < inner; ++k, a += f.a_column, b += f.b_row) {
    Vector right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) __builtin_memcpy(&right[v], b + v * lanes, sizeof(Vector));
#pragma GCC unroll 8
    for (int row = 0; row < rows; ++row)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[row][v] += a[row * f.a_row] * right[v];
  }
#pragma GCC unroll 8
  for (int row = 0; row < rows; ++row)
    __builtin_memcpy(out + row * out_row, sums[row], sizeof(sums[row]));
}

template <Instructions with, class W, int rows, int vectors>
int64_t small_columns(const SmallFactors<W>& f, int64_t first, const SmallSizes& s, W* out) {
  constexpr int64_t step = vectors * vector_bytes(with) / static_cast<int64_t>(sizeof(W));
  int64_t row = 0;
  for (; row + rows <= s.rows; row += rows)
    small_block<with, W, rows, vectors>(f, f.a + row * f.a_row, f.b + first, s.inner,
                                        out + row * s.columns + first, s.columns);
  for (; row < s.rows; ++row)
    small_block<with, W, 1, vectors>(f, f.a + row * f.a_row, f.b + first, s.inner,
                                     out + row * s.columns + first, s.columns);
  return first + step;
}

template <Instructions with, class W>
void small_product_with(const SmallFactors<W>& f, W* out, const SmallSizes& s) {
  constexpr int64_t lanes = vector_bytes(with) / static_cast<int64_t>(sizeof(W));
  int64_t column = 0;
  while (column + 2 * lanes <= s.columns) column = small_columns<with, W, 4, 2>(f, column, s, out);
  while (column < s.columns) column = small_columns<with, W, 8, 1>(f, column, s, out);
}

template <Instructions with>
void SmallProduct<with>::run(const SmallFactors<float>& f, float* out, const SmallSizes& s) {
  small_product_with<with>(f, out, s);
}
template <Instructions with>
void SmallProduct<with>::run(const SmallFactors<double>& f, double* out, const SmallSizes& s) {
  small_product_with<with>(f, out, s);
}

}  // namespace braid::kernels
