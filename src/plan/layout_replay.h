// SPDX-License-Identifier: BSD-3-Clause
// Plays the parts of a rank's life, one after the other, to the model of the caching allocator.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "braid/memory/ledger.h"
#include "braid/plan/allocator.h"

namespace braid::plan {

class LifeReplay {
 public:
  // `workspace`: bytes that each thread takes at its first product and keeps; 0: no library does.
  LifeReplay(AllocatorOptions options, int64_t workspace)
      : allocator_(options), workspace_(workspace) {}

  // `backward_began`: nanoseconds of this part's history from which products run on the thread of
  // the backward pass; -1: none does.
  void play(const memory::History& part, int64_t backward_began = -1);

  const CachingAllocator& allocator() const { return allocator_; }
  int64_t workspaces() const { return taken_; }

 private:
  void begin_part(const memory::History& part);
  void take_workspace(bool& has, int64_t bytes);

  CachingAllocator allocator_;
  int64_t workspace_;
  int64_t taken_ = 0;
  bool has_[2] = {false, false};     // forward, backward
  bool has_lt_[2] = {false, false};  // that of cuBLASLt
  uint64_t next_ = 0;
  std::unordered_map<uint64_t, uint64_t> number_;    // of a block of this part
  std::vector<std::pair<uint64_t, int64_t>> alive_;  // in the order they were taken: number, bytes
  std::unordered_map<uint64_t, size_t> place_;       // in alive_
};

}  // namespace braid::plan
