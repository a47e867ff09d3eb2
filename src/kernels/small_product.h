// SPDX-License-Identifier: BSD-3-Clause
// Products of matrices that are too small for a library's: tiles of one head of one window.
//
//   small_product<float>({.a = weights, .a_row = n, .b = v, .b_row = d}, out, {n, n, d});
#pragma once
#include <cstdint>

#include "kernels/wide.h"

namespace braid::kernels {

template <class W>
struct SmallFactors {
  const W* a;                   // [rows, inner]
  int64_t a_row, a_column = 1;  // how far rows and columns are apart
  const W* b;                   // [inner, columns], columns side by side
  int64_t b_row;
};

// columns: a multiple of whole_vector<W>.
struct SmallSizes {
  int64_t rows, inner, columns;
};

template <class W>
constexpr int64_t whole_vector = 64 / sizeof(W);

template <class W>
constexpr int64_t whole_vectors(int64_t count) {
  return (count + whole_vector<W> - 1) / whole_vector<W> * whole_vector<W>;
}

// out [rows, columns] = a b, in the instructions of a machine; small_product_*.cpp.
template <Instructions>
struct SmallProduct {
  static void run(const SmallFactors<float>& factors, float* out, const SmallSizes& sizes);
  static void run(const SmallFactors<double>& factors, double* out, const SmallSizes& sizes);
};

template <class W>
void small_product(const SmallFactors<W>& factors, W* out, const SmallSizes& sizes,
                   Instructions instructions = widest_instructions()) {
  if (instructions == Instructions::avx512)
    return SmallProduct<Instructions::avx512>::run(factors, out, sizes);
  if (instructions == Instructions::avx2)
    return SmallProduct<Instructions::avx2>::run(factors, out, sizes);
  SmallProduct<Instructions::any>::run(factors, out, sizes);
}

}  // namespace braid::kernels
