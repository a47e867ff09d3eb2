// SPDX-License-Identifier: BSD-3-Clause
// What the life of a rank takes, by what the ledger saw.
#pragma once
#include <string_view>

#include "braid/plan/layout.h"
#include "braid/train/life.h"
#include "plan/layout_replay.h"

namespace braid::plan {

class MemoryOfLife {
 public:
  MemoryOfLife(const train::RunOptions& options, const LayoutOptions& how);
  void add(std::string_view part, const memory::Ledger& ledger, const train::Life& so_far);
  RankMemory finish(const train::Life& life);

 private:
  memory::Place place_;
  bool gpu_, staged_;
  int64_t context_;
  LifeReplay replay_;
  RankMemory memory_;
};

// Bytes of the buffers that NCCL takes for these groups of a rank: an estimate.
int64_t nccl_bytes(const std::vector<train::LifeGroup>& groups);

}  // namespace braid::plan
