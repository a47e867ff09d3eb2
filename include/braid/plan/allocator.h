// SPDX-License-Identifier: BSD-3-Clause
// The caching allocator of CUDA tensors as a model: sizes are rounded, segments are taken from the
// driver and kept, blocks are split and merged, gaps stay.
//
//   plan::CachingAllocator allocator;
//   allocator.take(1, 3 << 20);
//   int64_t bytes = allocator.reserved();   // 20 MiB
#pragma once
#include <cstdint>
#include <memory>

#include "braid/memory/ledger.h"

namespace braid::plan {

struct AllocatorOptions {
  bool expandable = false;  // segments that grow instead of new ones
  int64_t limit = 0;        // of the device; beyond it cached segments are given back; 0: none
};

class CachingAllocator {
 public:
  explicit CachingAllocator(AllocatorOptions options = {});
  ~CachingAllocator();
  CachingAllocator(CachingAllocator&&) noexcept;
  CachingAllocator& operator=(CachingAllocator&&) noexcept;

  void take(uint64_t block, int64_t bytes);
  void free(uint64_t block);
  int64_t requested() const;  // alive, as asked for
  int64_t allocated() const;  // alive, rounded
  int64_t reserved() const;   // segments
  int64_t peak_requested() const, peak_allocated() const, peak_reserved() const;
  void reset_peak();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

void replay(CachingAllocator& allocator, const memory::History& history);

}  // namespace braid::plan
