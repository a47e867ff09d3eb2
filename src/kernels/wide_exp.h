// SPDX-License-Identifier: BSD-3-Clause
// An exponential that loops of wide.h make vectors of: within two units in the last place, with
// infinities, NaN and numbers that underflow as std::exp has them.
//
//   along(width, [&](int64_t i) { y[i] = exponential(x[i] - top); });
#pragma once
#include <array>

#include "kernels/wide.h"

namespace braid::kernels {

template <class W>
struct ExpNumbers;

template <>
struct ExpNumbers<float> {
  using Bits = uint32_t;
  static constexpr float least = -104.0f, most = 89.0f;  // beyond: 0 and infinity
  static constexpr float shift = 12582912.0f;            // 1.5 2^23: its last bits are an integer's
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  static constexpr int mantissa = 23, degree = 7;
  static constexpr Bits bias = 127;
};

template <>
struct ExpNumbers<double> {
  using Bits = uint64_t;
  static constexpr double least = -746.0, most = 710.0;
  static constexpr double shift = 6755399441055744.0;  // 1.5 2^52
  static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
  static constexpr int mantissa = 52, degree = 13;
  static constexpr Bits bias = 1023;
};

// 1 / k!
template <class W>
constexpr auto exp_series() {
  std::array<W, ExpNumbers<W>::degree + 1> all = {};
  double factorial = 1;
  for (size_t k = 0; k < all.size(); ++k) {
    if (k > 0) factorial *= static_cast<double>(k);
    all[k] = static_cast<W>(1 / factorial);
  }
  return all;
}

template <class W, size_t count>
BRAID_INLINE W polynomial(const std::array<W, count>& series, W x) {
  W sum = series[count - 1];
#pragma GCC unroll 24
  for (int k = static_cast<int>(count) - 2; k >= 0; --k)
    sum = sum * x + series[static_cast<size_t>(k)];
  return sum;
}

// e^x = 2^n e^r with |r| <= ln(2) / 2, and 2^n in two factors: the result may underflow or be
// infinite, neither of them does.
template <class W>
BRAID_INLINE W exponential(W given) {
  using N = ExpNumbers<W>;
  using Bits = typename N::Bits;
  constexpr auto series = exp_series<W>();
  W x = given < N::least ? N::least : given;
  x = x > N::most ? N::most : x;
  const W shifted = x * W(1.44269504088896340736) + N::shift;
  const W n = shifted - N::shift;
  const W r = (x - n * N::ln2_high) - n * N::ln2_low;
  const W power = polynomial(series, r);
  constexpr Bits lift = 4 * (N::bias + 1);  // shifts to the right are of numbers above zero
  const Bits whole = __builtin_bit_cast(Bits, shifted) - __builtin_bit_cast(Bits, N::shift) + lift;
  const Bits half = whole >> 1;
  const Bits first = (half + N::bias - lift / 2) << N::mantissa;
  const Bits second = (whole - half + N::bias - lift / 2) << N::mantissa;
  return power * __builtin_bit_cast(W, first) * __builtin_bit_cast(W, second);
}

template <class W>
BRAID_INLINE W sigmoid(W x) {
  return W(1) / (W(1) + exponential(-x));
}

}  // namespace braid::kernels
