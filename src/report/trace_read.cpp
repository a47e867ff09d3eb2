// SPDX-License-Identifier: BSD-3-Clause
#include "report/trace_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>

#include "braid/core/error.h"
#include "core/json.h"

namespace braid::report {
namespace {

using nlohmann::json;

DataError no_trace(const std::filesystem::path& file, const std::string& why) {
  return DataError({.what = fmt::format("{} is not a trace", file.string()),
                    .why = why,
                    .fix = "make it again with braid profile CONFIG"});
}

std::optional<SpanKind> kind_of(const std::string& category) {
  if (category == "cpu_op") return SpanKind::op;
  if (category == "user_annotation") return SpanKind::annotation;
  if (category == "kernel") return SpanKind::kernel;
  if (category == "gpu_memcpy" || category == "gpu_memset") return SpanKind::copy;
  return std::nullopt;
}

int64_t number_in(const json& arguments, const char* key) {
  const auto found = arguments.find(key);
  return found != arguments.end() && found->is_number() ? found->get<int64_t>() : -1;
}

std::optional<TraceSpan> span_of(const json& event) {
  if (event.value("ph", "") != "X" || !event.contains("dur")) return std::nullopt;
  const auto kind = kind_of(event.value("cat", ""));
  if (!kind) return std::nullopt;
  TraceSpan span;
  span.kind = *kind;
  span.begin = event.at("ts").get<double>();
  span.end = span.begin + event.at("dur").get<double>();
  if (event.contains("tid") && event["tid"].is_number()) span.thread = event["tid"].get<int64_t>();
  if (!event.contains("args")) return span;
  span.external = number_in(event["args"], "External id");
  span.sequence = number_in(event["args"], "Sequence number");
  return span;
}

}  // namespace

void read_events(const std::filesystem::path& file, const EachEvent& each) {
  std::ifstream in(file);
  if (!in) throw no_trace(file, "it cannot be read");
  std::string key;
  int64_t base = 0;
  const auto callback = [&](int depth, json::parse_event_t what, json& parsed) {
    if (what == json::parse_event_t::key && depth == 1) key = parsed.get<std::string>();
    if (what == json::parse_event_t::value && depth == 1 && key == "baseTimeNanoseconds")
      base = parsed.get<int64_t>();
    if (what != json::parse_event_t::object_end || depth != 2 || key != "traceEvents") return true;
    each(parsed, base);
    return false;  // it is not kept
  };
  try {
    const json head = json::parse(in, callback);
    if (!head.is_object() || !head.contains("traceEvents")) throw no_trace(file, "no traceEvents");
  } catch (const json::exception& error) {
    throw no_trace(file, json_fault(error));
  }
}

TraceSpans read_spans(const std::filesystem::path& file) {
  TraceSpans trace;
  std::map<std::string, uint32_t> index;
  read_events(file, [&](json& event, int64_t) {
    auto span = span_of(event);
    if (!span) return;
    const auto [entry, fresh] =
        index.try_emplace(event.value("name", ""), static_cast<uint32_t>(trace.names.size()));
    if (fresh) trace.names.push_back(entry->first);
    span->name = entry->second;
    trace.spans.push_back(*span);
  });
  std::stable_sort(trace.spans.begin(), trace.spans.end(),
                   [](const TraceSpan& a, const TraceSpan& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
                   });
  return trace;
}

Intervals::Intervals(std::vector<Interval> any) {
  std::sort(any.begin(), any.end());
  for (const Interval& next : any) {
    if (next.second <= next.first) continue;
    if (all_.empty() || next.first > all_.back().second)
      all_.push_back(next);
    else
      all_.back().second = std::max(all_.back().second, next.second);
  }
}

double Intervals::length() const {
  double sum = 0;
  for (const auto& [begin, end] : all_) sum += end - begin;
  return sum;
}

bool Intervals::contains(double time) const {
  const auto after = std::upper_bound(all_.begin(), all_.end(), Interval(time, 1e300));
  return after != all_.begin() && time < std::prev(after)->second;
}

Intervals Intervals::operator&(const Intervals& other) const {
  Intervals both;
  auto mine = all_.begin();
  auto theirs = other.all_.begin();
  while (mine != all_.end() && theirs != other.all_.end()) {
    const double begin = std::max(mine->first, theirs->first);
    const double end = std::min(mine->second, theirs->second);
    if (begin < end) both.all_.emplace_back(begin, end);
    (mine->second < theirs->second ? mine : theirs)++;
  }
  return both;
}

Intervals Intervals::operator|(const Intervals& other) const {
  std::vector<Interval> any = all_;
  any.insert(any.end(), other.all_.begin(), other.all_.end());
  return Intervals(std::move(any));
}

Intervals Intervals::operator-(const Intervals& other) const {
  Intervals left;
  auto theirs = other.all_.begin();
  for (auto [begin, end] : all_) {
    while (theirs != other.all_.end() && theirs->second <= begin) ++theirs;
    for (auto cut = theirs; cut != other.all_.end() && cut->first < end; ++cut) {
      if (cut->first > begin) left.all_.emplace_back(begin, cut->first);
      begin = std::max(begin, cut->second);
    }
    if (begin < end) left.all_.emplace_back(begin, end);
  }
  return left;
}

}  // namespace braid::report
