// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/memory_files.h"

#include "braid/report/memory_files.h"

namespace braid::train {
namespace {

using HistoryWhat = memory::HistoryEvent::What;
using ChangeWhat = report::MemoryChange::What;

static_assert(static_cast<int>(HistoryWhat::freed) == static_cast<int>(ChangeWhat::freed) &&
              static_cast<size_t>(memory::TimelineCategory::unknown) + 1 ==
                  report::memory_categories);

report::MemoryHistory report_of(memory::History history) {
  report::MemoryHistory to;
  to.names = std::move(history.names);
  to.changes.reserve(history.events.size());
  for (const memory::HistoryEvent& event : history.events)
    to.changes.push_back({.what = static_cast<ChangeWhat>(event.what),
                          .category = static_cast<uint8_t>(memory::timeline_category(event.kind)),
                          .module = event.module,
                          .op = event.op,
                          .block = event.block,
                          .bytes = event.bytes,
                          .nanoseconds = event.nanoseconds});
  return to;
}

}  // namespace

std::vector<std::filesystem::path> write_memory_files(const memory::Ledger& ledger,
                                                      memory::Place place,
                                                      const std::filesystem::path& dir,
                                                      const MemoryFilesOptions& options) {
  report::MemoryHistory history = report_of(ledger.history(place));
  history.rank = options.rank;
  history.device = memory::to_text(place);
  history.during = options.during;
  history.reserved = options.reserved;
  history.did_not_fit = options.did_not_fit;
  history.limit = options.limit;
  return report::write_memory_files(history, dir);
}

}  // namespace braid::train
