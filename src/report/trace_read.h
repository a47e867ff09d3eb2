// SPDX-License-Identifier: BSD-3-Clause
// Chrome traces, one event after the other: a file of a gigabyte does not lie in memory at once.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace braid::report {

// Calls `each` with every element of traceEvents; `base` is the time that their times count from,
// in nanoseconds. Throws DataError.
using EachEvent = std::function<void(nlohmann::json& event, int64_t base)>;
void read_events(const std::filesystem::path& file, const EachEvent& each);

enum class SpanKind : uint8_t { op, annotation, kernel, copy };

struct TraceSpan {
  double begin = 0, end = 0;  // microseconds
  uint32_t name = 0;
  SpanKind kind = SpanKind::op;
  int64_t thread = 0;
  int64_t external = -1;  // links a kernel to the operator that launched it
  int64_t sequence = -1;  // links an operator to its node of the backward pass
};

struct TraceSpans {
  std::vector<std::string> names;
  std::vector<TraceSpan> spans;  // by begin; who encloses another comes first
  const std::string& name(const TraceSpan& span) const { return names[span.name]; }
};
TraceSpans read_spans(const std::filesystem::path& file);

// Times that do not overlap, in order.
class Intervals {
 public:
  using Interval = std::pair<double, double>;
  Intervals() = default;
  explicit Intervals(std::vector<Interval> any);
  double length() const;
  bool contains(double time) const;
  bool empty() const { return all_.empty(); }
  const std::vector<Interval>& all() const { return all_; }
  Intervals operator&(const Intervals& other) const;
  Intervals operator|(const Intervals& other) const;
  Intervals operator-(const Intervals& other) const;

 private:
  std::vector<Interval> all_;
};

}  // namespace braid::report
