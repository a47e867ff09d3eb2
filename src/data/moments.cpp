// SPDX-License-Identifier: BSD-3-Clause
#include "data/moments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "data/finite.h"

namespace braid::data {
namespace {

constexpr int64_t lanes = 16;  // sums of their own, which compilers make vectors of

template <class Term>
double sum_of(const float* values, int64_t count, Term term) {
  std::array<double, lanes> sums = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      sums[static_cast<size_t>(lane)] += term(values[i + lane]);
  for (; i < count; ++i) sums[0] += term(values[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void find_range(const float* values, int64_t count, Moments& moments) {
  for (int64_t i = 0; i < count; ++i) {
    if (not_finite_bits(values[i])) continue;
    moments.least = std::min(moments.least, values[i]);
    moments.most = std::max(moments.most, values[i]);
  }
}

}  // namespace

Moments moments_of(const float* values, int64_t count) {
  Moments moments;
  moments.missing = static_cast<int64_t>(
      sum_of(values, count, [](float x) { return not_finite_bits(x) ? 1.0 : 0.0; }));
  moments.count = count - moments.missing;
  if (moments.count == 0) return moments;
  moments.mean = sum_of(values, count,
                        [](float x) { return not_finite_bits(x) ? 0.0 : static_cast<double>(x); }) /
                 static_cast<double>(moments.count);
  moments.squares = sum_of(values, count, [mean = moments.mean](float x) {
    const double distance = not_finite_bits(x) ? 0.0 : static_cast<double>(x) - mean;
    return distance * distance;
  });
  find_range(values, count, moments);
  return moments;
}

void Moments::add(const Moments& others) {
  missing += others.missing;
  if (others.count == 0) return;
  const auto own = static_cast<double>(count), more = static_cast<double>(others.count);
  const double shift = others.mean - mean, share = more / (own + more);
  squares += others.squares + shift * shift * own * share;
  mean += shift * share;
  count += others.count;
  least = std::min(least, others.least);
  most = std::max(most, others.most);
}

double Moments::std() const {
  // Of equal numbers the mean is seldom exact.
  return least == most || count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
}

}  // namespace braid::data
