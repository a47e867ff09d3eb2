// SPDX-License-Identifier: BSD-3-Clause
// Makes the coarse half of a super-resolution pair. Internal.
#pragma once
#include <cstdint>

namespace braid::data {

struct Plane {
  int64_t height = 0, width = 0;  // of the fine field; multiples of the scale
  int64_t scale = 2;
};

// Cubic convolution (a = -0.75) without antialiasing, edges repeated, as bicubic interpolation with
// align_corners = false.
void reduce_bicubic(const float* fine, const Plane& plane, float* coarse);
// Every scale-th point from the first.
void reduce_uniform(const float* fine, const Plane& plane, float* coarse);

}  // namespace braid::data
