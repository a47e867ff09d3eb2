// SPDX-License-Identifier: BSD-3-Clause
// The two JSON forms of PyTorch's memory timeline, and the files of a history.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <unordered_map>

#include "braid/core/fs.h"
#include "report/memory_points.h"

namespace braid::report {
namespace {

using RawWhat = MemoryChange::What;

void add_raw(std::string& text, const MemoryChange& change, int64_t bytes, int category) {
  // PyTorch gives what was there before the time -1: it does not know when.
  fmt::format_to(std::back_inserter(text), "{}[{},{},{},{}]", text.size() > 1 ? "," : "",
                 change.what == RawWhat::before ? -1 : change.nanoseconds,
                 static_cast<int>(change.what) + 1, bytes, category);
}

}  // namespace

std::string memory_timeline_json(const MemoryHistory& history) {
  const std::vector<MemoryPoint> points = memory_points(history);
  std::string text = "[[";
  for (size_t i = 0; i < points.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{:.3f}", i > 0 ? "," : "",
                   static_cast<double>(points[i].nanoseconds) * 1e-3);
  text += "],[";
  for (size_t i = 0; i < points.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}[0,{}]", i > 0 ? "," : "",
                   fmt::join(points[i].bytes, ","));
  return text += "]]";
}

std::string memory_raw_json(const MemoryHistory& history) {
  std::string text = "[";
  std::unordered_map<uint64_t, int> category;  // of each block alive
  for (const MemoryChange& change : history.changes) {
    if (change.what == RawWhat::changed)
      add_raw(text, change, -change.bytes, category[change.block]);
    const bool freed = change.what == RawWhat::freed;
    add_raw(text, change, freed ? -change.bytes : change.bytes, change.category);
    category[change.block] = change.category;
  }
  return text += "]";
}

std::vector<std::filesystem::path> write_memory_files(const MemoryHistory& history,
                                                      const std::filesystem::path& dir) {
  make_dirs(dir);
  std::vector<std::filesystem::path> files;
  const auto write = [&](const char* ending, const std::string& bytes) {
    files.push_back(dir / fmt::format("rank{}_memory{}", history.rank, ending));
    write_atomic(files.back(), bytes);
  };
  write(".html", memory_page(history));
  write(".json", memory_timeline_json(history));
  write(".raw.json", memory_raw_json(history));
  write("_snapshot.pickle", memory_snapshot(history));
  return files;
}

}  // namespace braid::report
