// SPDX-License-Identifier: BSD-3-Clause
#include "data/reduce.h"

#include <algorithm>
#include <array>
#include <vector>

namespace braid::data {
namespace {

// An output point lies at scale * (i + 1/2) - 1/2 = scale * i + (scale - 1) / 2 of the fine grid:
// between two points for an even scale, on a point for an odd one. So the four weights are the same
// for all points.
std::array<float, 4> cubic_weights(int64_t scale) {
  constexpr double a = -0.75;
  const double t = scale % 2 == 0 ? 0.5 : 0.0;
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {static_cast<float>(far(t + 1)), static_cast<float>(near(t)),
          static_cast<float>(near(1 - t)), static_cast<float>(far(2 - t))};
}

}  // namespace

void reduce_bicubic(const float* fine, const Plane& plane, float* coarse) {
  const auto [height, width, scale] = plane;
  const std::array<float, 4> w = cubic_weights(scale);
  const int64_t shift = (scale - 1) / 2 - 1;  // of the first tap
  const auto row_at = [&](int64_t r) {
    return fine + std::clamp<int64_t>(r, 0, height - 1) * width;
  };
  std::vector<float> line(static_cast<size_t>(width));
  for (int64_t i = 0; i < height / scale; ++i) {
    const int64_t top = i * scale + shift;
    const float *a = row_at(top), *b = row_at(top + 1), *c = row_at(top + 2), *d = row_at(top + 3);
    for (int64_t x = 0; x < width; ++x)
      line[x] = a[x] * w[0] + b[x] * w[1] + c[x] * w[2] + d[x] * w[3];
    const auto at = [&](int64_t x) { return line[std::clamp<int64_t>(x, 0, width - 1)]; };
    float* out = coarse + i * (width / scale);
    for (int64_t j = 0; j < width / scale; ++j) {
      const int64_t left = j * scale + shift;
      out[j] = at(left) * w[0] + at(left + 1) * w[1] + at(left + 2) * w[2] + at(left + 3) * w[3];
    }
  }
}

void reduce_uniform(const float* fine, const Plane& plane, float* coarse) {
  for (int64_t i = 0; i < plane.height / plane.scale; ++i)
    for (int64_t j = 0; j < plane.width / plane.scale; ++j)
      *coarse++ = fine[(i * plane.width + j) * plane.scale];
}

}  // namespace braid::data
