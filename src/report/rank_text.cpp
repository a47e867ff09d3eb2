// SPDX-License-Identifier: BSD-3-Clause
#include "report/rank_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/core/units.h"

namespace braid::report {
namespace {

constexpr size_t most_rows = 16;
constexpr size_t rows_of_many = 8;

// All in one unit, so that a column can be read downwards.
std::string time_cell(double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); }

std::string spread_cell(const Spread& spread) {
  return fmt::format("{:.1f} / {:.1f} / {:.1f} ms", 1e3 * spread.min, 1e3 * spread.median,
                     1e3 * spread.max);
}

std::string rank_row(size_t rank, const RankTime& time, const std::string& mark) {
  return fmt::format("  {:>5}  {:>12}  {:>12}  {:>12}  {:>12}{}", rank, time_cell(time.seconds),
                     time_cell(own_work(time)), time_cell(time.data_wait),
                     time_cell(time.comm_wait), mark);
}

std::string summary_row(const std::vector<RankTime>& means) {
  const RankSpread all = spread_of(means, 0);
  return fmt::format(
      "  all {}, min / median / max: step time {}, own work {}, data wait {}, comm wait {}",
      means.size(), spread_cell(all.seconds), spread_cell(all.own_work), spread_cell(all.data_wait),
      spread_cell(all.comm_wait));
}

}  // namespace

std::string ranks_text(const RunInfo& info) {
  std::string text = fmt::format("{} ranks", info.ranks);
  if (!info.mesh.empty()) text += fmt::format(" ({})", info.mesh);
  if (info.latency > 0 && info.latency < 1e-3)
    text += fmt::format(", latency of an all-reduce {:.2g} ms", 1e3 * info.latency);
  else if (info.latency > 0)
    text += ", latency of an all-reduce " + to_text(Seconds{info.latency});
  return text;
}

std::string straggler_text(const std::vector<RankTime>& means) {
  const std::optional<Straggler> slow = straggler_of(means);
  if (!slow) return "";
  return fmt::format("slowest rank {} (+{:.0f} %)", slow->rank, 100 * slow->above);
}

std::vector<std::string> rank_table(const std::vector<RankTime>& means) {
  const bool many = means.size() > most_rows;
  std::vector<size_t> rows = slowest_first(means);
  const std::optional<Straggler> slow = straggler_of(means);
  if (many)
    rows.resize(rows_of_many);
  else
    std::ranges::sort(rows);
  std::vector<std::string> lines = {fmt::format("  {:>5}  {:>12}  {:>12}  {:>12}  {:>12}", "rank",
                                                "step time", "own work", "data wait", "comm wait")};
  for (const size_t rank : rows) {
    const bool marked = slow && slow->rank == static_cast<int64_t>(rank);
    lines.push_back(rank_row(rank, means[rank],
                             marked ? fmt::format("  slowest, +{:.0f} %", 100 * slow->above) : ""));
  }
  if (many) lines.push_back(summary_row(means));
  return lines;
}

}  // namespace braid::report
