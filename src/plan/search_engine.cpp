// SPDX-License-Identifier: BSD-3-Clause
// Best first: what could be fastest is looked at first, and the rest is left out as soon as none of
// it can be. And a climb, which sees little of a space.
#include <algorithm>
#include <queue>
#include <utility>
#include <vector>

#include "braid/plan/search.h"

namespace braid::plan {
namespace {

struct Candidate {
  double bound = 0;
  size_t index = 0;
  // Of a queue that gives the highest bound first; among equals the first one.
  bool operator<(const Candidate& other) const {
    return bound != other.bound ? bound < other.bound : index > other.index;
  }
};

struct Valued {
  size_t index = 0;
  bool fits = false;
  double value = 0;
};

// Throughput that a choice must beat to be among the best `keep`; below zero: any that fits.
class Threshold {
 public:
  explicit Threshold(size_t keep) : keep_(std::max<size_t>(keep, 1)) {}
  void add(double value) {
    best_.push(value);
    if (best_.size() > keep_) best_.pop();
  }
  bool passed_by(double bound) const { return best_.size() < keep_ || bound > best_.top(); }

 private:
  size_t keep_;
  std::priority_queue<double, std::vector<double>, std::greater<>> best_;
};

}  // namespace

Best best_first(const Space& space, size_t keep) {
  std::priority_queue<Candidate> open;
  for (size_t i = 0; i < space.size; ++i)
    if (const double bound = space.bound(i); bound > 0) open.push({bound, i});
  Threshold threshold(keep);
  std::vector<Valued> valued;
  while (!open.empty() && threshold.passed_by(open.top().bound)) {
    if (space.stop && space.stop()) break;
    const Candidate next = open.top();
    open.pop();
    // What was learnt meanwhile may have lowered it.
    if (const double now = space.bound(next.index); now < next.bound) {
      if (now > 0) open.push({now, next.index});
      continue;
    }
    const auto [fits, value] = space.value(next.index);
    valued.push_back({next.index, fits, value});
    if (fits) threshold.add(value);
  }
  std::stable_sort(valued.begin(), valued.end(), [](const Valued& a, const Valued& b) {
    if (a.fits != b.fits) return a.fits;
    if (a.fits && a.value != b.value) return a.value > b.value;
    return a.fits && a.index < b.index;
  });
  Best best;
  best.evaluated = valued.size();
  for (const Valued& each : valued) best.order.push_back(each.index);
  return best;
}

size_t climb(const Slope& slope, size_t start) {
  for (size_t here = start;;) {
    const std::vector<size_t> near = slope.neighbours(here);
    const auto up = std::find_if(near.begin(), near.end(), [&](size_t there) {
      return slope.stop && slope.stop() ? false : slope.better(there, here);
    });
    if (up == near.end()) return here;
    here = *up;
  }
}

}  // namespace braid::plan
