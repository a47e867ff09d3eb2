// SPDX-License-Identifier: BSD-3-Clause
#include "plan/cost_surface.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace braid::plan {

Surface::Surface(const Curve& curve, const Estimate& estimate) {
  for (const CurvePoint& point : curve.points) {
    const double guess = estimate(point.at);
    if (!(guess > 0) || !(point.seconds > 0)) continue;
    Known known;
    for (const double size : point.at) known.at.push_back(std::log2(size));
    known.ratio = std::log(point.seconds / guess);
    known_.push_back(std::move(known));
  }
  std::sort(known_.begin(), known_.end(),
            [](const Known& a, const Known& b) { return a.at < b.at; });
}

double Surface::ratio(const std::vector<double>& at) const {
  if (known_.empty()) return 1;
  std::vector<double> logs;
  for (const double size : at) logs.push_back(std::log2(std::max(size, 1.0)));
  return std::exp(logs.size() == 1 ? along_line(logs[0]) : among_nearest(logs));
}

double Surface::along_line(double at) const {
  const auto above = std::lower_bound(known_.begin(), known_.end(), at,
                                      [](const Known& k, double x) { return k.at[0] < x; });
  if (above == known_.begin()) return known_.front().ratio;
  if (above == known_.end()) return known_.back().ratio;
  const Known &left = above[-1], &right = above[0];
  const double part = (at - left.at[0]) / (right.at[0] - left.at[0]);
  return left.ratio + part * (right.ratio - left.ratio);
}

// The mean of the nearest points, each weighted by the inverse of the fourth power of its distance:
// at a point that was measured its own value, far from all of them the mean of the closest ones.
double Surface::among_nearest(const std::vector<double>& at) const {
  std::vector<std::pair<double, double>> near;  // squared distance, ratio
  near.reserve(known_.size());
  for (const Known& known : known_) {
    double distance = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      const double apart = at[i] - known.at[i];
      distance += apart * apart;
    }
    if (distance < 1e-6) return known.ratio;
    near.emplace_back(distance, known.ratio);
  }
  const size_t count = std::min<size_t>(near.size(), 6);
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(count), near.end());
  double weights = 0, sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const double weight = 1 / (near[i].first * near[i].first);
    weights += weight;
    sum += weight * near[i].second;
  }
  return sum / weights;
}

}  // namespace braid::plan
