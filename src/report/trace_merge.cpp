// SPDX-License-Identifier: BSD-3-Clause
// The traces of all ranks as one: a process a rank, times by the clock of rank 0.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>

#include "braid/core/fs.h"
#include "braid/report/trace.h"
#include "report/trace_read.h"

namespace braid::report {
namespace {

using nlohmann::json;

// Numbers of one rank are no numbers of another.
constexpr int64_t flow_ids_of_a_rank = int64_t{1} << 33;
constexpr int64_t processes_of_a_rank = 64;

class MergedTrace {
 public:
  explicit MergedTrace(const std::filesystem::path& to) : part_(to.string() + ".part"), to_(to) {
    out_.open(part_);
    out_ << R"({"schemaVersion":1,"displayTimeUnit":"ms","traceName":"trace.json","traceEvents":[)";
  }

  void add(const TracePart& part) {
    rank_ = part.rank;
    labels_.clear();
    pids_.clear();
    thread_names_.clear();
    read_events(part.file, [&](json& event, int64_t base) {
      if (first_base_ < 0) first_base_ = base;
      take(event, static_cast<double>(base - first_base_ + part.clock_offset) * 1e-3);
    });
    for (const auto& [old, pid] : pids_) name_process(old, pid);
    for (json& event : thread_names_) {
      const auto known = pids_.find(event["pid"].dump());
      if (known == pids_.end()) continue;
      event["pid"] = known->second;
      write(event);
    }
  }

  void finish() {
    out_ << "\n],\"baseTimeNanoseconds\":" << std::max<int64_t>(first_base_, 0) << "}\n";
    out_.close();
    if (!out_) throw_storage("write", part_, errno);
    std::filesystem::rename(part_, to_);
  }

 private:
  void take(json& event, double shift) {
    if (!event.contains("pid")) return;
    if (event.value("ph", "") == "M") return keep_name(event);
    event["pid"] = pid_of(event["pid"]);
    if (event.contains("ts")) event["ts"] = event["ts"].get<double>() + shift;
    if (event.contains("id") && event["id"].is_number())
      event["id"] = event["id"].get<int64_t>() + rank_ * flow_ids_of_a_rank;
    write(event);
  }

  // Names stand at the end, and those of GPUs without events, too.
  void keep_name(json& event) {
    const std::string what = event.value("name", "");
    if (what == "thread_name" || what == "thread_sort_index") thread_names_.push_back(event);
    if (what == "process_labels") labels_[event["pid"].dump()] = event["args"].value("labels", "");
  }

  int64_t pid_of(const json& old) {
    const auto order = static_cast<int64_t>(pids_.size()) + 1;  // 0 is no process to Perfetto
    return pids_.try_emplace(old.dump(), rank_ * processes_of_a_rank + order).first->second;
  }

  // The process of the rank, its GPUs, and rows that are neither.
  void name_process(const std::string& old, int64_t pid) {
    const std::string& label = labels_[old];
    const std::string more =
        label.empty() ? json::parse(old).is_string() ? json::parse(old).get<std::string>() : old
                      : label;
    const std::string name =
        label == "CPU" ? fmt::format("rank {}", rank_) : fmt::format("rank {} {}", rank_, more);
    write({{"ph", "M"}, {"name", "process_name"}, {"pid", pid}, {"args", {{"name", name}}}});
    write({{"ph", "M"},
           {"name", "process_sort_index"},
           {"pid", pid},
           {"args", {{"sort_index", pid}}}});
  }

  void write(const json& event) {
    out_ << (wrote_ ? ",\n" : "\n") << event.dump(-1, ' ', false, json::error_handler_t::replace);
    wrote_ = true;
  }

  std::filesystem::path part_, to_;
  std::ofstream out_;
  bool wrote_ = false;
  int64_t rank_ = 0, first_base_ = -1;
  std::map<std::string, std::string> labels_;  // by the pid of the rank's trace
  std::map<std::string, int64_t> pids_;
  std::vector<json> thread_names_;
};

}  // namespace

int merge_traces(const std::vector<TracePart>& parts, const std::filesystem::path& to) {
  MergedTrace merged(to);
  int missing = 0;
  for (const TracePart& part : parts) {
    if (std::filesystem::exists(part.file))
      merged.add(part);
    else
      ++missing;
  }
  merged.finish();
  return missing;
}

}  // namespace braid::report
