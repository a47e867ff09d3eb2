// SPDX-License-Identifier: BSD-3-Clause
// A history as PyTorch's memory viewer wants it. The ledger counts bytes and knows no addresses, so
// the blocks are laid out here: first fit in one segment, as large as it has to be.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "braid/report/memory_files.h"
#include "report/pickle.h"

namespace braid::report {
namespace {

using SnapshotWhat = MemoryChange::What;

constexpr int64_t first_address = int64_t{1} << 32;
constexpr int64_t alignment = 512;  // of CUDA's allocator

int64_t aligned(int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// First fit; holes next to each other are one.
class Arena {
 public:
  int64_t take(int64_t bytes) {
    const int64_t size = aligned(bytes);
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      const auto [address, length] = *hole;
      if (length < size) continue;
      holes_.erase(hole);
      if (length > size) holes_[address + size] = length - size;
      return address;
    }
    end_ += size;
    return end_ - size;
  }

  void free(int64_t address, int64_t bytes) {
    auto hole = holes_.emplace(address, aligned(bytes)).first;
    const auto after = std::next(hole);
    if (after != holes_.end() && hole->first + hole->second == after->first) {
      hole->second += after->second;
      holes_.erase(after);
    }
    if (hole == holes_.begin()) return;
    const auto before = std::prev(hole);
    if (before->first + before->second != hole->first) return;
    before->second += hole->second;
    holes_.erase(hole);
  }

  int64_t size() const { return end_ - first_address; }

 private:
  int64_t end_ = first_address;
  std::map<int64_t, int64_t> holes_;  // address -> bytes
};

struct Placed {
  const MemoryChange* taken = nullptr;
  int64_t address = 0;
  uint8_t category = 7;
};

struct TraceEntry {
  const MemoryChange* change;
  Placed block;
};

struct Laid {
  std::vector<TraceEntry> entries;  // taken and freed
  std::map<int64_t, Placed> alive;  // at the end, by address
  int64_t size = 0;
};

// A block that was ever kept for the backward pass is an activation: an entry has one category.
std::unordered_map<const MemoryChange*, uint8_t> categories_of(const MemoryHistory& history) {
  std::unordered_map<const MemoryChange*, uint8_t> category;
  std::unordered_map<uint64_t, const MemoryChange*> taken;
  for (const MemoryChange& change : history.changes) {
    if (change.what == SnapshotWhat::changed) {
      category.emplace(taken.at(change.block), change.category);
    } else if (change.what != SnapshotWhat::freed) {
      taken[change.block] = &change;
    }
  }
  return category;
}

Laid laid_out(const MemoryHistory& history) {
  Laid laid;
  Arena arena;
  const auto categories = categories_of(history);
  std::unordered_map<uint64_t, Placed> alive;
  for (const MemoryChange& change : history.changes) {
    if (change.bytes == 0 || change.what == SnapshotWhat::changed) continue;
    if (change.what == SnapshotWhat::freed) {
      const Placed block = alive.at(change.block);
      arena.free(block.address, block.taken->bytes);
      laid.alive.erase(block.address);
      laid.entries.push_back({&change, block});
      continue;
    }
    const auto known = categories.find(&change);
    const Placed block{&change, arena.take(change.bytes),
                       known == categories.end() ? change.category : known->second};
    alive[change.block] = block;
    laid.alive[block.address] = block;
    laid.entries.push_back({&change, block});
  }
  laid.size = arena.size();
  return laid;
}

class SnapshotWriter {
 public:
  SnapshotWriter(const MemoryHistory& history, Laid laid, size_t most_entries)
      : history_(history), laid_(std::move(laid)) {
    size_t lines = 1;  // oom, or the one that names "unknown"
    first_entry_ = laid_.entries.size();
    while (first_entry_ > 0) {
      lines += laid_.entries[first_entry_ - 1].change->what == SnapshotWhat::freed ? 2 : 1;
      if (lines > most_entries) break;
      --first_entry_;
    }
  }

  std::string write() {
    to_.begin_dict();
    to_.text("segments").begin_list();
    if (laid_.size > 0) segment();
    to_.end_list();
    to_.text("device_traces").begin_list();
    trace();
    to_.next().end_list();
    to_.text("allocator_settings").begin_dict();
    to_.text("written_by").text("braid");
    to_.text("device").text(history_.device);
    to_.text("rank").integer(history_.rank);
    to_.end_dict();
    to_.text("external_annotations").begin_list().end_list();
    return to_.end_dict().finish();
  }

 private:
  void segment() {
    int64_t requested = 0, active = 0;
    for (const auto& [address, block] : laid_.alive) {
      requested += block.taken->bytes;
      active += aligned(block.taken->bytes);
    }
    to_.begin_dict();
    to_.text("device").integer(0);
    to_.text("address").integer(first_address);
    to_.text("total_size").integer(laid_.size);
    to_.text("allocated_size").integer(active);
    to_.text("active_size").integer(active);
    to_.text("requested_size").integer(requested);
    to_.text("stream").integer(0);
    to_.text("segment_type").text("large");
    to_.text("segment_pool_id").integer(0).integer(0).pair();
    to_.text("is_expandable").boolean(false);
    to_.text("frames").begin_list().end_list();
    to_.text("blocks").begin_list();
    blocks();
    to_.end_list().end_dict().next();
  }

  // The viewer adds up the sizes to find the addresses, so the holes are blocks as well.
  void blocks() {
    int64_t at = first_address;
    for (const auto& [address, block] : laid_.alive) {
      if (address > at) hole(at, address - at);
      one_block(address, aligned(block.taken->bytes), block.taken->bytes, "active_allocated");
      frames(*block.taken);
      to_.end_dict().next();
      at = address + aligned(block.taken->bytes);
    }
    if (at < first_address + laid_.size) hole(at, first_address + laid_.size - at);
  }

  void hole(int64_t address, int64_t bytes) {
    one_block(address, bytes, 0, "inactive");
    to_.text("frames").begin_list().end_list().end_dict().next();
  }

  void one_block(int64_t address, int64_t size, int64_t requested, std::string_view state) {
    to_.begin_dict();
    to_.text("address").integer(address);
    to_.text("size").integer(size);
    to_.text("requested_size").integer(requested);
    to_.text("state").text(state);
  }

  void trace() {
    to_.begin_list();
    bool unknown = false;
    for (size_t i = first_entry_; i < laid_.entries.size(); ++i) {
      const TraceEntry& one = laid_.entries[i];
      unknown = unknown || one.block.category + 1U == memory_categories;
      const int64_t bytes = one.block.taken->bytes;
      const auto write_as = [&](std::string_view action) {
        entry({action, "addr", one.block.address, bytes, one.change->nanoseconds});
        to_.text("category").text(memory_category_names[one.block.category]);
        frames(*one.block.taken);
        to_.end_dict().next();
      };
      if (one.change->what != SnapshotWhat::freed) {
        write_as("alloc");
        continue;
      }
      write_as("free_requested");
      write_as("free_completed");
    }
    last_entries(unknown);
    to_.end_list();
  }

  void last_entries(bool has_unknown) {
    const int64_t now = history_.changes.empty() ? 0 : history_.changes.back().nanoseconds;
    if (history_.did_not_fit > 0) {
      int64_t used = 0;
      for (const auto& [address, block] : laid_.alive) used += block.taken->bytes;
      entry({"oom", "device_free", std::max<int64_t>(0, history_.limit - used),
             history_.did_not_fit, now});
      to_.text("category").text("unknown").end_dict().next();
    }
    // The viewer looks for the colour of "unknown" whether it is used or not.
    if (has_unknown || history_.did_not_fit > 0) return;
    entry({"snapshot", "addr", 0, 0, now});
    to_.text("category").text("unknown").end_dict().next();
  }

  struct Line {
    std::string_view action, where;
    int64_t address, bytes, nanoseconds;
  };
  void entry(const Line& line) {
    to_.begin_dict();
    to_.text("action").text(line.action);
    to_.text(line.where).integer(line.address);
    to_.text("size").integer(line.bytes);
    to_.text("stream").integer(0);
    to_.text("time_us").integer(line.nanoseconds / 1000);
  }

  // One frame, the operator in its module; few differ, so each is written once.
  void frames(const MemoryChange& taken) {
    to_.text("frames");
    const auto [found, is_new] = frames_.try_emplace({taken.module, taken.op}, 0);
    if (!is_new) {
      to_.again(found->second);
      return;
    }
    const std::string &module = history_.names[taken.module], &op = history_.names[taken.op];
    to_.begin_list().begin_dict();
    to_.text("filename").text(module.empty() ? "outside of modules" : module);
    to_.text("line").integer(0);
    to_.text("name").text(op.empty() ? "outside of operators" : op);
    to_.end_dict().next().end_list();
    found->second = to_.remember();
  }

  const MemoryHistory& history_;
  Laid laid_;
  size_t first_entry_ = 0;  // that is kept
  Pickle to_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> frames_;
};

}  // namespace

std::string memory_snapshot(const MemoryHistory& history, size_t most_entries) {
  return SnapshotWriter(history, laid_out(history), most_entries).write();
}

}  // namespace braid::report
