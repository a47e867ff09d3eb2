// SPDX-License-Identifier: BSD-3-Clause
#include "report/page_ranks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>

namespace braid::report {
namespace {

constexpr size_t most_slow_rows = 16;

struct RankRow {
  int64_t rank = 0;
  RankTime time = {};
  double above = 0;  // 0.14: busy 14 % longer than the median
  double share = 1;  // of the steps, in which the log has its times
};

PageJson json_of_rows(const std::vector<RankRow>& rows) {
  PageJson json = PageJson::array();
  for (const auto& [rank, time, above, share] : rows)
    json.push_back({{"rank", rank},
                    {"seconds", rounded(time.seconds)},
                    {"busy", rounded(busy_time(time))},
                    {"own", rounded(own_work(time))},
                    {"data", rounded(time.data_wait)},
                    {"comm", rounded(time.comm_wait)},
                    {"above", rounded(above)},
                    {"share", rounded(share)}});
  return json;
}

PageJson json_of_spread_triple(const Spread& spread) {
  return PageJson::array({rounded(spread.min), rounded(spread.median), rounded(spread.max)});
}

PageJson json_of_rank_spread(const RankSpread& spread) {
  return {{"seconds", json_of_spread_triple(spread.seconds)},
          {"busy", json_of_spread_triple(spread.busy)},
          {"own", json_of_spread_triple(spread.own_work)},
          {"data", json_of_spread_triple(spread.data_wait)},
          {"comm", json_of_spread_triple(spread.comm_wait)}};
}

// Of a run that went on with another number of ranks, only the steps of the last number.
std::vector<const StepRecord*> steps_with_ranks(const RunLog& log) {
  std::vector<const StepRecord*> steps;
  for (const StepRecord& step : log.steps)
    if (static_cast<int64_t>(step.ranks.size()) == log.info.ranks) steps.push_back(&step);
  return steps;
}

std::vector<const RankSpread*> spreads_of_world(const RunLog& log) {
  std::vector<const RankSpread*> spreads;
  for (const RankSpread& spread : log.spreads)
    if (spread.ranks == log.info.ranks) spreads.push_back(&spread);
  return spreads;
}

template <class Item>
std::span<const Item> last_tenth(const std::vector<Item>& items) {
  return std::span(items).last((items.size() + 9) / 10);
}

double share_above(double busy, double median) { return median > 0 ? busy / median - 1 : 0; }

PageJson means_json(std::span<const StepRecord* const> steps) {
  RankSums sums;
  for (const StepRecord* step : steps) sums.add(step->ranks);
  const std::vector<RankTime> means = sums.means();
  const double median = busy_spread(means).median;
  std::vector<RankRow> rows;
  for (size_t i = 0; i < means.size(); ++i)
    rows.push_back({static_cast<int64_t>(i), means[i], share_above(busy_time(means[i]), median)});
  return {{"steps", steps.size()},
          {"slowest", slowest_first(means).front()},
          {"spread", json_of_rank_spread(spread_of(means, 0))},
          {"rows", json_of_rows(rows)}};
}

void add_part(Spread& sum, const Spread& spread, double part) {
  sum.min += part * spread.min;
  sum.median += part * spread.median;
  sum.max += part * spread.max;
}

RankSpread mean_spread(std::span<const RankSpread* const> spreads) {
  RankSpread mean;
  const double part = 1 / static_cast<double>(spreads.size());
  for (const RankSpread* spread : spreads) {
    add_part(mean.seconds, spread->seconds, part);
    add_part(mean.busy, spread->busy, part);
    add_part(mean.own_work, spread->own_work, part);
    add_part(mean.data_wait, spread->data_wait, part);
    add_part(mean.comm_wait, spread->comm_wait, part);
  }
  return mean;
}

struct NamedSums {
  RankTime time;
  double count = 0, excess = 0;
};

std::map<int64_t, NamedSums> sums_of_named(std::span<const RankSpread* const> spreads) {
  std::map<int64_t, NamedSums> sums;
  for (const RankSpread* spread : spreads)
    for (const auto& [rank, time] : spread->slowest) {
      NamedSums& sum = sums[rank];
      sum.time = {sum.time.seconds + time.seconds, sum.time.data_wait + time.data_wait,
                  sum.time.comm_wait + time.comm_wait};
      sum.excess += busy_time(time) - spread->busy.median;
      ++sum.count;
    }
  return sums;
}

// Those first that took most above the median over all steps; a step that does not name a rank
// counts as one at the median. The times are means of the steps that do.
std::vector<RankRow> slowest_rows(std::span<const RankSpread* const> spreads, double median) {
  const auto steps = static_cast<double>(spreads.size());
  std::vector<RankRow> rows;
  for (const auto& [rank, sum] : sums_of_named(spreads))
    rows.push_back({rank,
                    {sum.time.seconds / sum.count, sum.time.data_wait / sum.count,
                     sum.time.comm_wait / sum.count},
                    share_above(median + sum.excess / steps, median),
                    sum.count / steps});
  std::ranges::sort(rows, [](const RankRow& a, const RankRow& b) {
    return a.above != b.above ? a.above > b.above : a.rank < b.rank;
  });
  if (rows.size() > most_slow_rows) rows.resize(most_slow_rows);
  return rows;
}

PageJson many_json(std::span<const RankSpread* const> spreads) {
  const RankSpread mean = mean_spread(spreads);
  const std::vector<RankRow> rows = slowest_rows(spreads, mean.busy.median);
  return {{"steps", spreads.size()},
          {"slowest", rows.empty() ? PageJson(nullptr) : PageJson(rows.front().rank)},
          {"spread", json_of_rank_spread(mean)},
          {"rows", json_of_rows(rows)}};
}

}  // namespace

PageJson ranks_json(const RunLog& log) {
  if (log.info.ranks < 2) return nullptr;
  PageJson json = {{"count", log.info.ranks},
                   {"mesh", log.info.mesh},
                   {"latency", rounded(log.info.latency)},
                   {"many", static_cast<size_t>(log.info.ranks) > most_ranks_kept},
                   {"all", nullptr},
                   {"last", nullptr}};
  const std::vector<const StepRecord*> steps = steps_with_ranks(log);
  const std::vector<const RankSpread*> spreads = spreads_of_world(log);
  const bool many = json["many"].get<bool>();
  if (many ? spreads.empty() : steps.empty()) return json;
  json["all"] = many ? many_json(spreads) : means_json(steps);
  json["last"] = many ? many_json(last_tenth(spreads)) : means_json(last_tenth(steps));
  return json;
}

PageJson rank_curves_json(const RunLog& log) {
  std::map<int64_t, Spread> busy;
  for (const StepRecord& step : log.steps)
    if (!step.ranks.empty()) busy[step.step] = busy_spread(step.ranks);
  for (const RankSpread& spread : log.spreads) busy[spread.step] = spread.busy;
  if (busy.empty()) return nullptr;
  const Curves curves(log);
  const auto curve = [&](double Spread::* part) {
    const auto value = [&, part](const StepRecord& step) {
      const auto found = busy.find(step.step);
      return found == busy.end() ? std::numeric_limits<double>::quiet_NaN()
                                 : 1e3 * (found->second.*part);
    };
    return json_of(curves.ratio(value, [](const StepRecord&) { return 1.0; }));
  };
  return {{"slowest", curve(&Spread::max)}, {"median", curve(&Spread::median)}};
}

}  // namespace braid::report
