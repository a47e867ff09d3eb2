// SPDX-License-Identifier: BSD-3-Clause
// The rules of the CUDA caching allocator of torch 2.11, as far as they decide how much a process
// has from the driver. One stream: the steps of braid take tensors on the current stream alone.
#include "braid/plan/allocator.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace braid::plan {
namespace {

constexpr int64_t smallest_block = 512;          // all sizes are multiples of it
constexpr int64_t most_small = 1 << 20;          // larger ones come from the pool of large blocks
constexpr int64_t small_segment = 2 << 20;       // what the driver is asked for by small blocks
constexpr int64_t large_segment = 20 << 20;      // by blocks of 1 to 10 MiB
constexpr int64_t least_own_segment = 10 << 20;  // from here on a segment of their own
constexpr int64_t own_rounding = 2 << 20;

int64_t rounded_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

int64_t segment_bytes(int64_t size) {
  if (size <= most_small) return small_segment;
  return size < least_own_segment ? large_segment : rounded_up(size, own_rounding);
}

}  // namespace

struct AllocatorChunk {
  int64_t size = 0;
  int64_t segment = 0;    // neighbours of one segment may be merged
  int64_t requested = 0;  // by the block in it
  bool small = false, used = false;
  bool mapped = true;  // false: addresses of a growing segment without memory
};
using AllocatorChunks =
    std::map<int64_t, AllocatorChunk>;  // by address: made up, ascending as segments are made

struct CachingAllocator::State {
  explicit State(AllocatorOptions given) : options(given) {}

  using Free = std::set<std::pair<int64_t, int64_t>>;  // size, address: the best fit comes first

  void take(uint64_t block, int64_t bytes) {
    if (bytes <= 0) return;  // no memory at all
    const int64_t size = rounded_up(bytes, smallest_block);
    const bool small = size <= most_small;
    AllocatorChunks::iterator at = best_fit(size, small);
    if (at == chunks.end()) at = options.expandable ? grow(size, small) : new_segment(size, small);
    split(at, size);
    at->second.used = true;
    at->second.requested = bytes;
    blocks[block] = at->first;
    requested += bytes;
    allocated += at->second.size;
    peak_requested = std::max(peak_requested, requested);
    peak_allocated = std::max(peak_allocated, allocated);
    peak_reserved = std::max(peak_reserved, reserved);
  }

  void free(uint64_t block) {
    const auto found = blocks.find(block);
    if (found == blocks.end()) return;  // of no bytes
    const auto at = chunks.find(found->second);
    blocks.erase(found);
    requested -= std::exchange(at->second.requested, 0);
    allocated -= at->second.size;
    at->second.used = false;
    put_back(at);
  }

  Free& pool(bool small) { return small ? small_free : large_free; }

  AllocatorChunks::iterator best_fit(int64_t size, bool small) {
    Free& free = pool(small);
    auto found = free.lower_bound({size, -1});
    if (found == free.end()) return chunks.end();
    if (options.expandable)  // what can grow counts with its room: it is left for larger blocks
      for (auto next = std::next(found);
           next != free.end() && room_of(next->second) < room_of(found->second); ++next)
        found = next;
    const auto at = chunks.find(found->second);
    free.erase(found);
    return at;
  }

  int64_t room_of(int64_t address) const {
    const auto at = chunks.find(address), after = std::next(at);
    const bool grows = after != chunks.end() && !after->second.mapped &&
                       after->second.segment == at->second.segment;
    return at->second.size + (grows ? after->second.size : 0);
  }

  // What a block leaves of a chunk is kept if it is of use: in the pool of large ones, for large
  // ones.
  void split(AllocatorChunks::iterator at, int64_t size) {
    const int64_t rest = at->second.size - size;
    const bool any = at->second.small || options.expandable;
    if (any ? rest < smallest_block : rest <= most_small) return;
    AllocatorChunk tail = at->second;
    tail.size = rest;
    at->second.size = size;
    pool(tail.small).emplace(rest, at->first + size);
    chunks.emplace(at->first + size, tail);
  }

  bool may_merge(AllocatorChunks::iterator a, AllocatorChunks::iterator b) const {
    return a->second.segment == b->second.segment && !b->second.used &&
           a->second.mapped == b->second.mapped;
  }

  void put_back(AllocatorChunks::iterator at) {
    if (at != chunks.begin()) {
      const auto before = std::prev(at);
      if (may_merge(at, before)) {
        pool(at->second.small).erase({before->second.size, before->first});
        before->second.size += at->second.size;
        chunks.erase(at);
        at = before;
      }
    }
    const auto after = std::next(at);
    if (after != chunks.end() && may_merge(at, after)) {
      pool(at->second.small).erase({after->second.size, after->first});
      at->second.size += after->second.size;
      chunks.erase(after);
    }
    if (at->second.mapped) pool(at->second.small).emplace(at->second.size, at->first);
  }

  void ask_driver(int64_t bytes) {
    if (options.limit > 0 && reserved + bytes > options.limit) give_back();
    reserved += bytes;
  }

  AllocatorChunks::iterator new_segment(int64_t size, bool small) {
    const int64_t bytes = segment_bytes(size);
    ask_driver(bytes);
    const int64_t number = ++segments;
    const AllocatorChunk whole{.size = bytes, .segment = number, .small = small};
    const int64_t address = next_address;
    next_address += bytes;
    return chunks.emplace_hint(chunks.end(), address, whole);
  }

  // Segments that nothing is in, or whole pages of growing ones.
  void give_back() {
    for (const bool small : {false, true}) {
      const std::vector<std::pair<int64_t, int64_t>> all(pool(small).begin(), pool(small).end());
      for (const auto& [size, address] : all)
        options.expandable ? unmap(address) : drop_if_whole(address);
    }
  }

  void drop_if_whole(int64_t address) {
    const auto at = chunks.find(address);
    const auto shares = [&](AllocatorChunks::iterator other) {
      return other->second.segment == at->second.segment;
    };
    if (at != chunks.begin() && shares(std::prev(at))) return;
    if (std::next(at) != chunks.end() && shares(std::next(at))) return;
    pool(at->second.small).erase({at->second.size, address});
    reserved -= at->second.size;
    chunks.erase(at);
  }

  // Expandable segments: one for each pool, of pages that are given from the lowest address on.
  static constexpr int64_t room = int64_t{1} << 50;  // addresses of one

  int64_t page(bool small) const { return small ? small_segment : large_segment; }
  int64_t first_address(bool small) const { return small ? room : 3 * room; }

  AllocatorChunks::iterator grow(int64_t size, bool small) {
    const int64_t start = first_address(small);
    if (!chunks.contains(start))
      chunks.emplace(
          start, AllocatorChunk{.size = room, .segment = start, .small = small, .mapped = false});
    for (auto at = chunks.find(start); at != chunks.end() && at->second.segment == start; ++at) {
      if (at->second.mapped) continue;
      const bool joins = at->first != start && !std::prev(at)->second.used;
      const int64_t before = joins ? std::prev(at)->second.size : 0;
      if (before + at->second.size < size) continue;
      return map(at, size - before, joins);
    }
    return chunks.end();  // not reached: there is more room than any device has memory
  }

  // Pages for `more` bytes at the front of `at`, joined with the free chunk before it.
  AllocatorChunks::iterator map(AllocatorChunks::iterator at, int64_t more, bool joins) {
    const bool small = at->second.small;
    const int64_t bytes = std::min(rounded_up(more, page(small)), at->second.size);
    const int64_t address = at->first;
    reserved_by_map(bytes, joins ? std::prev(at) : chunks.end());
    AllocatorChunk rest = at->second;
    rest.size -= bytes;
    at->second.size = bytes;
    at->second.mapped = true;
    if (rest.size > 0) chunks.emplace(address + bytes, rest);
    if (!joins) return at;
    const auto before = std::prev(at);
    pool(small).erase({before->second.size, before->first});
    before->second.size += bytes;
    chunks.erase(at);
    return before;
  }

  // What is about to be joined must not be given back to make room.
  void reserved_by_map(int64_t bytes, AllocatorChunks::iterator keep) {
    if (keep == chunks.end()) return ask_driver(bytes);
    keep->second.used = true;
    pool(keep->second.small).erase({keep->second.size, keep->first});
    ask_driver(bytes);
    keep->second.used = false;
    pool(keep->second.small).emplace(keep->second.size, keep->first);
  }

  void unmap(int64_t address) {
    const auto at = chunks.find(address);
    if (at == chunks.end() || at->second.used) return;
    const int64_t unit = page(at->second.small), start = first_address(at->second.small);
    const int64_t first = start + rounded_up(address - start, unit);
    const int64_t last = start + (address + at->second.size - start) / unit * unit;
    if (first >= last) return;
    pool(at->second.small).erase({at->second.size, address});
    const AllocatorChunk whole = at->second;
    const auto part = [&](int64_t from, int64_t until, bool mapped) {
      if (from >= until) return;
      AllocatorChunk piece = whole;
      piece.size = until - from;
      piece.mapped = mapped;
      const auto where = chunks.insert_or_assign(from, piece).first;
      put_back(where);
    };
    const int64_t end = address + whole.size;
    chunks.erase(at);
    part(address, first, true);
    part(last, end, true);
    part(first, last, false);
    reserved -= last - first;
  }

  AllocatorOptions options;
  AllocatorChunks chunks;
  Free small_free, large_free;
  std::unordered_map<uint64_t, int64_t> blocks;  // addresses
  int64_t next_address = 0, segments = 0;
  int64_t requested = 0, allocated = 0, reserved = 0;
  int64_t peak_requested = 0, peak_allocated = 0, peak_reserved = 0;
};

CachingAllocator::CachingAllocator(AllocatorOptions options)
    : state_(std::make_unique<State>(options)) {}
CachingAllocator::~CachingAllocator() = default;
CachingAllocator::CachingAllocator(CachingAllocator&&) noexcept = default;
CachingAllocator& CachingAllocator::operator=(CachingAllocator&&) noexcept = default;

void CachingAllocator::take(uint64_t block, int64_t bytes) { state_->take(block, bytes); }
void CachingAllocator::free(uint64_t block) { state_->free(block); }
int64_t CachingAllocator::requested() const { return state_->requested; }
int64_t CachingAllocator::allocated() const { return state_->allocated; }
int64_t CachingAllocator::reserved() const { return state_->reserved; }
int64_t CachingAllocator::peak_requested() const { return state_->peak_requested; }
int64_t CachingAllocator::peak_allocated() const { return state_->peak_allocated; }
int64_t CachingAllocator::peak_reserved() const { return state_->peak_reserved; }

void CachingAllocator::reset_peak() {
  state_->peak_requested = state_->requested;
  state_->peak_allocated = state_->allocated;
  state_->peak_reserved = state_->reserved;
}

void replay(CachingAllocator& allocator, const memory::History& history) {
  using What = memory::HistoryEvent::What;
  for (const memory::HistoryEvent& event : history.events) {
    if (event.what == What::before || event.what == What::taken)
      allocator.take(event.block, event.bytes);
    if (event.what == What::freed) allocator.free(event.block);
  }
}

}  // namespace braid::plan
