// SPDX-License-Identifier: BSD-3-Clause
// Measured times over times of the roofline, at any sizes: between the points that were measured.
//
//   Surface surface(curve, Between::grid,
//                   [&](const std::vector<double>& at) { return roofline.stream(at[0]); });
//   double seconds = surface.ratio({3e6}) * roofline.stream(3e6);
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "braid/plan/cluster.h"

namespace braid::plan {

// How a value between points comes about.
enum class Between : uint8_t {
  grid,     // size by size from the last one on: the two values around it, linear in logarithms
  nearest,  // of points that lie anywhere: the mean of the nearest
};

class Surface {
 public:
  using Estimate = std::function<double(const std::vector<double>&)>;
  Surface(const Curve& curve, Between between, const Estimate& estimate);
  double ratio(const std::vector<double>& at) const;  // 1 where it has no points

 private:
  struct Known {
    std::vector<double> at;  // logarithms to the base 2
    double ratio = 0;        // its logarithm
  };
  using Some = std::vector<const Known*>;
  static double on_grid(const Some& points, const std::vector<double>& at, size_t sizes);
  double among_nearest(const std::vector<double>& at) const;
  Between between_;
  std::vector<Known> known_;
};

}  // namespace braid::plan
