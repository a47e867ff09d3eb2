// SPDX-License-Identifier: BSD-3-Clause
#include "plan/cost_surface.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace braid::plan {

Surface::Surface(const Curve& curve, Between between, const Estimate& estimate)
    : between_(between) {
  for (const CurvePoint& point : curve.points) {
    const double guess = estimate(point.at);
    if (!(guess > 0) || !(point.seconds > 0)) continue;
    Known known;
    for (const double size : point.at) known.at.push_back(std::log2(size));
    known.ratio = std::log(point.seconds / guess);
    known_.push_back(std::move(known));
  }
}

double Surface::ratio(const std::vector<double>& at) const {
  if (known_.empty()) return 1;
  std::vector<double> logs;
  for (const double size : at) logs.push_back(std::log2(std::max(size, 1.0)));
  if (between_ == Between::nearest) return std::exp(among_nearest(logs));
  Some all;
  for (const Known& known : known_) all.push_back(&known);
  return std::exp(on_grid(all, logs, logs.size()));
}

// Points of the nearest value below and of the nearest above, then the same with the size before.
// Beyond the last value its own ratio is kept.
double Surface::on_grid(const Some& points, const std::vector<double>& at, size_t sizes) {
  if (sizes == 0) {
    double sum = 0;
    for (const Known* known : points) sum += known->ratio;
    return sum / static_cast<double>(points.size());
  }
  const size_t size = sizes - 1;
  constexpr double same = 1e-9, none = std::numeric_limits<double>::infinity();
  double below = -none, above = none;
  for (const Known* known : points) {
    if (known->at[size] <= at[size] + same) below = std::max(below, known->at[size]);
    if (known->at[size] >= at[size] - same) above = std::min(above, known->at[size]);
  }
  const auto of = [&](double value) {
    Some some;
    for (const Known* known : points)
      if (std::abs(known->at[size] - value) < same) some.push_back(known);
    return on_grid(some, at, size);
  };
  if (below == -none) return of(above);
  if (above == none || above - below < same) return of(below);
  const double part = (at[size] - below) / (above - below);
  return (1 - part) * of(below) + part * of(above);
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
