// SPDX-License-Identifier: BSD-3-Clause
// Measured times over times of the roofline, at any sizes: between the points that were measured.
//
//   Surface surface(curve, [&](const std::vector<double>& at) { return roofline.stream(at[0]); });
//   double seconds = surface.ratio({3e6}) * roofline.stream(3e6);
#pragma once
#include <functional>
#include <vector>

#include "braid/plan/cluster.h"

namespace braid::plan {

class Surface {
 public:
  using Estimate = std::function<double(const std::vector<double>&)>;
  Surface(const Curve& curve, const Estimate& estimate);
  double ratio(const std::vector<double>& at) const;  // 1 where it has no points

 private:
  struct Known {
    std::vector<double> at;  // logarithms to the base 2
    double ratio = 0;        // its logarithm
  };
  double along_line(double at) const;
  double among_nearest(const std::vector<double>& at) const;
  std::vector<Known> known_;  // ascending where there is one size
};

}  // namespace braid::plan
