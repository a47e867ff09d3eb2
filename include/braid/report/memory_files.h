// SPDX-License-Identifier: BSD-3-Clause
// The history of one device's memory as files that people and PyTorch's tools read.
//
//   report::MemoryHistory history{.device = "cpu", .names = {"", "layers.0"}, .changes = changes};
//   write_atomic("rank0_memory.html", report::memory_page(history));
//   write_atomic("rank0_memory_snapshot.pickle", report::memory_snapshot(history));
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace braid::report {

// Those of PyTorch's memory timeline, in its order.
inline constexpr size_t memory_categories = 8;
inline constexpr std::array<std::string_view, memory_categories> memory_category_names = {
    "parameter",  "optimizer_state", "input",           "temporary",
    "activation", "gradient",        "autograd_detail", "unknown"};

struct MemoryChange {
  enum class What : uint8_t {
    before,  // alive when the history began
    taken,
    changed,  // into another category: a result that the backward pass will want is an activation
    freed
  };
  What what = What::taken;
  uint8_t category = 7;         // after the change; of `freed` the last one
  uint32_t module = 0, op = 0;  // that took the block, into MemoryHistory::names
  uint64_t block = 0;           // which; used again only after it was freed
  int64_t bytes = 0;
  int64_t nanoseconds = 0;  // since the history began
};

struct MemoryHistory {
  int rank = 0;
  std::string device = {};  // cpu, cuda:0
  std::string during = {};  // e.g. "steps 4 to 8"; may be empty
  int64_t reserved = 0;     // most that the allocator held of the device; 0: it is not known
  int64_t did_not_fit = 0;  // bytes of the allocation that failed at the end; 0: none did
  int64_t limit = 0;        // bytes that the device has; 0: it is not known
  std::vector<std::string> names = {""};
  std::vector<MemoryChange> changes = {};  // in time
};

using CategoryBytes = std::array<int64_t, memory_categories>;

struct MemoryPoint {
  int64_t nanoseconds = 0;
  CategoryBytes bytes = {};
};
// The bytes of each category after each change; what was there before is the first point.
std::vector<MemoryPoint> memory_points(const MemoryHistory& history);

// An interactive page without anything from outside.
std::string memory_page(const MemoryHistory& history);
// [[microseconds, ...], [[0, parameter, optimizer_state, ...], ...]] as PyTorch's exporter has it.
std::string memory_timeline_json(const MemoryHistory& history);
// [[nanoseconds, action, bytes, category], ...]: action 1 there before, 2 taken, 3 changed, 4
// freed.
std::string memory_raw_json(const MemoryHistory& history);
// A pickle that PyTorch's memory viewer opens: the last `most_entries` changes, and what is alive.
std::string memory_snapshot(const MemoryHistory& history, size_t most_entries = 100'000);

// All four as rank<R>_memory.html, .json, .raw.json and rank<R>_memory_snapshot.pickle.
std::vector<std::filesystem::path> write_memory_files(const MemoryHistory& history,
                                                      const std::filesystem::path& dir);

}  // namespace braid::report
