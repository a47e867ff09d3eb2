// SPDX-License-Identifier: BSD-3-Clause
// The `memory` section of a config: what is kept, what is computed again, what lies on the host.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "braid/core/options.h"

namespace braid::memory {

enum class Again : uint8_t {
  none,       // every value that the backward pass wants is kept
  blocks,     // inputs of segments are kept, the rest is computed again
  attention,  // scores, softmax and dropout of attention are computed again
  matmuls,    // blocks, but results of attention kernels and of products 1, 3, 5... are kept
  budget      // as little as lets the step fit into memory.budget
};

enum class StashFormat : uint8_t { exact, bf16, int8 };

struct MemoryOptions {
  Bytes limit = {};  // of a rank's device; 0: what the device has
  Again recompute = Again::none;
  int64_t segment = 1;  // recompute blocks: blocks of a segment; 0: the square root of their number
  Bytes budget = {};    // recompute budget: peak of a step
  std::map<std::string, Again> plan = {};  // not a key: what the budget came to, block by block
  std::vector<std::string> offload = {};   // of optimizer, parameters, activations
  int64_t delay = 0;  // offload optimizer: from this step on updates come one step late; 0: never
  StashFormat stash = StashFormat::exact;  // how values wait for the backward pass
  bool pack_masks = false;                 // one bit for a truth value
  int64_t window = 2;                      // offload activations: tensors on their way at a time
  bool check_recompute = false;            // what is computed again is compared, bit by bit
  bool keep_freed = true;                  // on a CPU: for the next step, not for the system

  bool offloads(const std::string& what) const;
  bool stashes() const {  // something stands between autograd and what it keeps
    return offloads("activations") || stash != StashFormat::exact || pack_masks;
  }
};
void describe(Fields& fields, MemoryOptions& options);

}  // namespace braid::memory
