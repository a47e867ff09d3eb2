// SPDX-License-Identifier: BSD-3-Clause
// What lies within what in a trace: the own time of each operator, the modules it works for.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "report/trace_read.h"

namespace braid::report {

enum class Mark : uint8_t { step, region, wait, call, transfer, module };
// Of an annotation; `in_wait`: within one that waits for others.
Mark mark_of(std::string_view name, bool in_wait);

struct OperatorWork {
  size_t span;
  double own = 0;         // microseconds outside of operators and waits within it
  double waited = 0;      // within it
  bool outermost = true;  // not within one of the same name
  bool backward = false;
  std::vector<uint32_t> modules = {};  // names, outermost first
};

struct NestedTrace {
  std::vector<OperatorWork> operators;
  std::vector<size_t> steps, regions, waits, messages, transfers;  // spans; messages: waited for
  int64_t main_thread = 0;
};

NestedTrace nest(const TraceSpans& trace);

}  // namespace braid::report
