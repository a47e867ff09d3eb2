// SPDX-License-Identifier: BSD-3-Clause
// Curves of a run, thinned to what a screen can show.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "report/records.h"

namespace braid::report {

inline constexpr size_t most_points = 2000;

struct Curve {
  std::vector<int64_t> step;
  std::vector<double> seconds;  // of training up to that step
  std::vector<double> value;
  void add(int64_t at_step, double at_seconds, double a_value);
};

// The steps of a run with the time at each; all curves are cut from it.
class Curves {
 public:
  using Value = std::function<double(const StepRecord&)>;
  explicit Curves(const RunLog& log);

  Curve extremes(const Value& value) const;  // keeps the peaks: least and greatest of each stretch
  Curve smooth(const Value& value) const;    // exponential mean over about a hundredth of the run
  Curve last(const Value& value) const;      // of each stretch
  // Sum over sum of each stretch, e.g. samples over seconds; stretches are longer, since single
  // steps jump.
  Curve ratio(const Value& above, const Value& below) const;
  Curve valid(
      const std::string& metric) const;  // "loss" or the name of a metric, at each validation

 private:
  void walk(size_t stretches, const std::function<void(size_t, size_t)>& take) const;
  double seconds_at(int64_t step) const;

  const RunLog& log_;
  std::vector<double> seconds_;
};

}  // namespace braid::report
