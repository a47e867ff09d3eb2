// SPDX-License-Identifier: BSD-3-Clause
// A predicted step as Chrome JSON, laid out as the measured trace of all ranks: a process a rank, a
// row a stream.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include "braid/plan/simulate.h"

namespace braid::plan {
namespace {

constexpr int64_t rows_of_a_rank = 64;  // as many numbers as a measured rank has in a merged trace

class PredictedTrace {
 public:
  std::string text(const StepTime& time) {
    for (const TimeSpan& span : time.timeline) add(span);
    double end = 0;
    for (const TimeSpan& span : time.timeline) end = std::max(end, span.end);
    for (const int64_t rank : ranks_) name_rank(rank, end);
    for (const auto& [row, number] : rows_) name_row(row, number);
    return R"({"schemaVersion":1,"displayTimeUnit":"ms","traceName":"plan_trace.json",)"
           R"("traceEvents":[)" +
           events_ + "\n]}\n";
  }

 private:
  using Row = std::pair<int64_t, std::string>;

  void add(const TimeSpan& span) {
    if (std::find(ranks_.begin(), ranks_.end(), span.rank) == ranks_.end())
      ranks_.push_back(span.rank);
    write({{"ph", "X"},
           {"cat", span.stream == "regions" ? "user_annotation" : "kernel"},
           {"name", span.name},
           {"pid", pid_of(span.rank)},
           {"tid", row_of({span.rank, span.stream})},
           {"ts", span.begin * 1e6},
           {"dur", (span.end - span.begin) * 1e6}});
  }

  static int64_t pid_of(int64_t rank) { return rank * rows_of_a_rank + 1; }  // 0 is no process

  // Regions stand on top, then compute, then the rest as they come.
  int64_t row_of(const Row& row) {
    if (row.second == "regions") return rows_.try_emplace(row, 1).first->second;
    if (row.second == "compute") return rows_.try_emplace(row, 2).first->second;
    const auto [place, fresh] = rows_.try_emplace(row, 0);
    if (fresh) place->second = 3 + others_[row.first]++;
    return place->second;
  }

  void name_rank(int64_t rank, double end) {
    const int64_t pid = pid_of(rank);
    const std::string name = "rank " + std::to_string(rank) + " (predicted)";
    write({{"ph", "M"}, {"name", "process_name"}, {"pid", pid}, {"args", {{"name", name}}}});
    write({{"ph", "M"},
           {"name", "process_sort_index"},
           {"pid", pid},
           {"args", {{"sort_index", pid}}}});
    write({{"ph", "X"},
           {"cat", "user_annotation"},
           {"name", "ProfilerStep#0"},
           {"pid", pid},
           {"tid", row_of({rank, "regions"})},
           {"ts", 0.0},
           {"dur", end * 1e6}});
  }

  void name_row(const Row& row, int64_t number) {
    const int64_t pid = pid_of(row.first);
    write({{"ph", "M"},
           {"name", "thread_name"},
           {"pid", pid},
           {"tid", number},
           {"args", {{"name", row.second}}}});
    write({{"ph", "M"},
           {"name", "thread_sort_index"},
           {"pid", pid},
           {"tid", number},
           {"args", {{"sort_index", number}}}});
  }

  void write(const nlohmann::json& event) {
    events_ += events_.empty() ? "\n" : ",\n";
    events_ += event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  std::string events_;
  std::vector<int64_t> ranks_;
  std::map<Row, int64_t> rows_;
  std::map<int64_t, int64_t> others_;
};

}  // namespace

std::string to_trace(const StepTime& time) { return PredictedTrace().text(time); }

}  // namespace braid::plan
