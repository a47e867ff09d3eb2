// SPDX-License-Identifier: BSD-3-Clause
#include "report/ranks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace braid::report {
namespace {

constexpr double straggler_share = 0.1;  // less is noise of a shared machine

// Clocks differ by a little; and what is not a number must not be sorted.
double positive(double seconds) { return seconds > 0 ? seconds : 0; }

template <class Value>
std::vector<double> values_of(const std::vector<RankTime>& ranks, Value value) {
  std::vector<double> values;
  values.reserve(ranks.size());
  for (const RankTime& rank : ranks) values.push_back(value(rank));
  return values;
}

}  // namespace

double busy_time(const RankTime& time) { return positive(time.seconds - time.comm_wait); }

double own_work(const RankTime& time) { return positive(busy_time(time) - time.data_wait); }

std::vector<size_t> slowest_first(const std::vector<RankTime>& ranks) {
  const std::vector<double> busy = values_of(ranks, busy_time);
  std::vector<size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(
      order, [&](size_t a, size_t b) { return busy[a] != busy[b] ? busy[a] > busy[b] : a < b; });
  return order;
}

Spread spread_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return {};
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {values.front(), median, values.back()};
}

Spread busy_spread(const std::vector<RankTime>& ranks) {
  return spread_of(values_of(ranks, busy_time));
}

RankSpread spread_of(const std::vector<RankTime>& ranks, size_t most_slowest) {
  RankSpread spread{
      .ranks = static_cast<int64_t>(ranks.size()),
      .seconds = spread_of(values_of(ranks, [](const RankTime& time) { return time.seconds; })),
      .busy = busy_spread(ranks),
      .own_work = spread_of(values_of(ranks, own_work)),
      .data_wait = spread_of(values_of(ranks, [](const RankTime& time) { return time.data_wait; })),
      .comm_wait =
          spread_of(values_of(ranks, [](const RankTime& time) { return time.comm_wait; }))};
  const std::vector<size_t> order = slowest_first(ranks);
  for (size_t i = 0; i < std::min(most_slowest, order.size()); ++i)
    spread.slowest.push_back({static_cast<int64_t>(order[i]), ranks[order[i]]});
  return spread;
}

std::optional<Straggler> straggler_of(const std::vector<RankTime>& ranks) {
  if (ranks.size() < 2) return std::nullopt;
  const Spread busy = busy_spread(ranks);
  if (!(busy.median > 0) || !(busy.max > (1 + straggler_share) * busy.median)) return std::nullopt;
  return Straggler{static_cast<int64_t>(slowest_first(ranks).front()), busy.max / busy.median - 1};
}

void RankSums::add(const std::vector<RankTime>& ranks) {
  if (ranks.empty()) return;
  if (ranks.size() != sums_.size()) {
    sums_.assign(ranks.size(), {});
    steps_ = 0;
  }
  ++steps_;
  for (size_t i = 0; i < ranks.size(); ++i) {
    sums_[i].seconds += ranks[i].seconds;
    sums_[i].data_wait += ranks[i].data_wait;
    sums_[i].comm_wait += ranks[i].comm_wait;
  }
}

void RankSums::fade(double keep) {
  steps_ *= keep;
  for (RankTime& sum : sums_)
    sum = {keep * sum.seconds, keep * sum.data_wait, keep * sum.comm_wait};
}

std::vector<RankTime> RankSums::means() const {
  std::vector<RankTime> means;
  means.reserve(sums_.size());
  for (const RankTime& sum : sums_)
    means.push_back({sum.seconds / steps_, sum.data_wait / steps_, sum.comm_wait / steps_});
  return means;
}

}  // namespace braid::report
