// SPDX-License-Identifier: BSD-3-Clause
// The normal distribution, for GELU, in loops that wide.h makes vectors of. One exponential gives
// the share below a number and the density there, both right to some units in the last place, also
// far out, where 1 + erf would have lost its digits.
//
//   along(width, [&](int64_t i) { y[i] = x[i] * Normal(x[i]).share; });
#pragma once
#include <array>

#include "kernels/wide_exp.h"

namespace braid::kernels {

// (z + middle) e^(z z) erfc(z) as a polynomial of (z - middle) / (z + middle), interpolated at
// Chebyshev points of z >= 0: to 5e-9 for float as far as e^(-z z) is above zero, to 3e-17 for
// double.
template <class W>
struct NormalNumbers;

template <>
struct NormalNumbers<float> {
  static constexpr float middle = 2;
  static constexpr std::array series = {1.021582709f,    -0.6871607193f,    0.2794717824f,
                                        -0.03644122935f, -0.02150580908f,   0.006472044398f,
                                        0.003061985383f, -0.0008218910693f, -0.0005880981145f,
                                        3.763922097e-5f, 6.327861754e-5f};
};

template <>
struct NormalNumbers<double> {
  static constexpr double middle = 2;
  static constexpr std::array series = {
      1.021582705242023,        -0.687160684413810764,     0.279472092556047516,
      -0.0364422315068568614,   -0.021510661889057374,     0.00647918506691779245,
      0.0030906120491882993,    -0.000837296048565936538,  -0.000663073383786588209,
      0.0000343713057333354758, 0.000144469864943524435,   0.0000341496390362327045,
      -0.000021692049812854607, -0.0000161235926179026076, -1.13898007132033389e-6,
      3.64989968781697294e-6,   2.03204245163784256e-6,    -6.33637890578153747e-9,
      -6.18290070091641073e-7,  -3.18887065574728082e-7,   4.65896307404104913e-8,
      1.11469926083416824e-7,   2.38446340814395677e-8,    -1.48218467686606989e-8,
      -5.82196203871876004e-9};
};

template <class W>
struct Normal {
  BRAID_INLINE explicit Normal(W x) {
    using N = NormalNumbers<W>;
    const W bell = exponential(W(-0.5) * x * x);
    const W z = (x < 0 ? -x : x) * W(0.70710678118654752440);
    const W part = W(1) / (z + N::middle);
    const W t = W(1) - 2 * N::middle * part;  // of an infinite z, too
    const W tail = W(0.5) * bell * part * polynomial(N::series, t);
    share = x > 0 ? 1 - tail : tail;
    density = bell * W(0.39894228040143267794);
  }
  W share, density;
};

}  // namespace braid::kernels
