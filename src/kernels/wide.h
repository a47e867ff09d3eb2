// SPDX-License-Identifier: BSD-3-Clause
// Loops of CPU kernels in the widest instructions of the machine that runs them: braid is compiled
// for any x86-64, and what stands inside of widest() for AVX2 and AVX-512 as well.
//
//   widest([&] {
//     const float squares = sum_along<float>(width, [&](int64_t i) { return x[i] * x[i]; });
//     along(width, [&](int64_t i) { y[i] = x[i] * squares; });
//   });
//
// The compiler makes vectors of the loops: bodies have no branches and call what is inlined.
// Results depend neither on the instructions nor, but for sums, on the place of an element in its
// row.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace braid::kernels {

#define BRAID_INLINE [[gnu::always_inline]] inline
#ifdef __x86_64__
#define BRAID_COMPILED_FOR(features) __attribute__((flatten, target(features)))
#else
#define BRAID_COMPILED_FOR(features)
#endif

enum class Instructions { any, avx2, avx512 };

Instructions widest_instructions();  // of this machine

template <class Body>
BRAID_COMPILED_FOR("avx2,fma,f16c")
void with_avx2(const Body& body) {
  body();
}

template <class Body>
BRAID_COMPILED_FOR("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
void with_avx512(const Body& body) {
  body();
}

template <class Body>
void widest(const Body& body, Instructions instructions = widest_instructions()) {
  if (instructions == Instructions::avx512) return with_avx512(body);
  if (instructions == Instructions::avx2) return with_avx2(body);
  body();
}

// What numbers of 16 bits are computed in.
template <class T>
using WideOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The calls do not depend on each other.
template <class Body>
BRAID_INLINE void along(int64_t count, const Body& body) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) body(i);
}

// Joins the terms from `first` on to those of as many lanes, as long as there are so many.
template <int64_t lanes, class W, class Join, class Term>
BRAID_INLINE int64_t join_lanes(int64_t first, int64_t count, W* all, const Join& join,
                                const Term& term) {
  for (; first + lanes <= count; first += lanes) {
    W terms[lanes];
    along(lanes, [&](int64_t lane) { terms[lane] = term(first + lane); });
    along(lanes, [&](int64_t lane) { all[lane] = join(all[lane], terms[lane]); });
  }
  return first;
}

// `join` of all terms, which may come in any order.
template <class W, class Join, class Term>
BRAID_INLINE W join_along(int64_t count, W first, const Join& join, const Term& term) {
  constexpr int64_t most = 32;  // enough for the latency of additions
  W all[most];
  for (W& one : all) one = first;
  int64_t i = join_lanes<most>(0, count, all, join, term);
  i = join_lanes<8>(i, count, all, join, term);
  for (; i < count; ++i) all[i % 8] = join(all[i % 8], term(i));
  for (int64_t half = most / 2; half > 0; half /= 2)
    along(half, [&](int64_t lane) { all[lane] = join(all[lane], all[lane + half]); });
  return all[0];
}

template <class W, class Term>
BRAID_INLINE W sum_along(int64_t count, const Term& term) {
  return join_along(count, W(0), [](W a, W b) { return a + b; }, term);
}

template <class W, class Term>
BRAID_INLINE W largest_along(int64_t count, W first, const Term& term) {
  return join_along(count, first, [](W a, W b) { return a > b ? a : b; }, term);
}

}  // namespace braid::kernels
