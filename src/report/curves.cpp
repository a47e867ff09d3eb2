// SPDX-License-Identifier: BSD-3-Clause
#include "report/curves.h"

#include <algorithm>
#include <cmath>

namespace braid::report {
namespace {

Curve thinned(const Curve& curve) {
  const size_t count = curve.step.size();
  if (count <= most_points) return curve;
  Curve thin;
  for (size_t i = 1; i <= most_points; ++i) {
    const size_t at = i * count / most_points - 1;
    thin.add(curve.step[at], curve.seconds[at], curve.value[at]);
  }
  return thin;
}

struct FadingMean {
  double keep = 0, sum = 0, weight = 0;
  void add(double value) {  // one that is not finite only makes the others older
    sum = keep * sum + (std::isfinite(value) ? value : 0);
    weight = keep * weight + (std::isfinite(value) ? 1 : 0);
  }
};

// Exponential weights to both sides: a mean of the past alone would run behind a falling loss.
std::vector<double> smoothed(const std::vector<double>& values) {
  const size_t count = values.size();
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(count) / 200);
  std::vector<FadingMean> past(count);
  FadingMean mean{keep};
  for (size_t i = 0; i < count; ++i) {
    // Without the value itself, which the other side counts.
    past[i] = {keep, keep * mean.sum, keep * mean.weight};
    mean.add(values[i]);
  }
  std::vector<double> means(count);
  mean = {keep};
  for (size_t i = count; i-- > 0;) {
    mean.add(values[i]);
    means[i] = (past[i].sum + mean.sum) / (past[i].weight + mean.weight);
  }
  return means;
}

}  // namespace

void Curve::add(int64_t at_step, double at_seconds, double a_value) {
  step.push_back(at_step);
  seconds.push_back(at_seconds);
  value.push_back(a_value);
}

Curves::Curves(const RunLog& log) : log_(log) {
  double sum = 0;
  for (const StepRecord& step : log.steps) {
    sum += std::isfinite(step.seconds) ? step.seconds : 0;
    seconds_.push_back(sum);
  }
}

// Cuts the steps into at most so many stretches of nearly equal length.
void Curves::walk(size_t stretches, const std::function<void(size_t, size_t)>& take) const {
  const size_t count = log_.steps.size();
  stretches = std::min(stretches, count);
  for (size_t i = 0; i < stretches; ++i) take(i * count / stretches, (i + 1) * count / stretches);
}

Curve Curves::extremes(const Value& value) const {
  Curve curve;
  const auto add = [&](size_t i) {
    curve.add(log_.steps[i].step, seconds_[i], value(log_.steps[i]));
  };
  if (log_.steps.size() <= most_points) {
    for (size_t i = 0; i < log_.steps.size(); ++i) add(i);
    return curve;
  }
  walk(most_points / 2, [&](size_t begin, size_t end) {
    size_t least = begin, greatest = begin;
    for (size_t i = begin; i < end; ++i) {
      if (value(log_.steps[i]) < value(log_.steps[least])) least = i;
      if (value(log_.steps[i]) > value(log_.steps[greatest])) greatest = i;
    }
    add(std::min(least, greatest));
    if (least != greatest) add(std::max(least, greatest));
  });
  return curve;
}

Curve Curves::smooth(const Value& value) const {
  std::vector<double> values;
  for (const StepRecord& step : log_.steps) values.push_back(value(step));
  const std::vector<double> means = smoothed(values);
  Curve curve;
  walk(most_points, [&](size_t, size_t end) {
    curve.add(log_.steps[end - 1].step, seconds_[end - 1], means[end - 1]);
  });
  return curve;
}

Curve Curves::last(const Value& value) const {
  Curve curve;
  walk(most_points, [&](size_t, size_t end) {
    curve.add(log_.steps[end - 1].step, seconds_[end - 1], value(log_.steps[end - 1]));
  });
  return curve;
}

Curve Curves::ratio(const Value& above, const Value& below) const {
  Curve curve;
  walk(most_points / 8, [&](size_t begin, size_t end) {
    double top = 0, bottom = 0;
    for (size_t i = begin; i < end; ++i) {
      top += above(log_.steps[i]);
      bottom += below(log_.steps[i]);
    }
    curve.add(log_.steps[end - 1].step, seconds_[end - 1], top / bottom);
  });
  return curve;
}

double Curves::seconds_at(int64_t step) const {
  const auto found = std::ranges::upper_bound(log_.steps, step, {}, &StepRecord::step);
  const auto count = static_cast<size_t>(found - log_.steps.begin());
  return count == 0 ? 0 : seconds_[count - 1];
}

Curve Curves::valid(const std::string& metric) const {
  Curve curve;
  for (const ValidRecord& valid : log_.valids) {
    const auto found = valid.metrics.find(metric);
    const bool is_loss = metric == "loss";
    if (valid.split != "valid" || (!is_loss && found == valid.metrics.end())) continue;
    curve.add(valid.step, seconds_at(valid.step), is_loss ? valid.loss : found->second);
  }
  return thinned(curve);
}

}  // namespace braid::report
