// SPDX-License-Identifier: BSD-3-Clause
#include "braid/memory/options.h"

#include <algorithm>

namespace braid::memory {

bool MemoryOptions::offloads(const std::string& what) const {
  return std::find(offload.begin(), offload.end(), what) != offload.end();
}

void describe(Fields& fields, MemoryOptions& o) {
  fields.field("limit", o.limit,
               "most bytes of a rank's device that the run may take, e.g. 2 GiB; beyond, it ends "
               "with a report; 0: what the device has");
  fields.choice("recompute", o.recompute, {"none", "blocks", "attention", "matmuls", "budget"},
                "what is computed again in the backward pass instead of kept: blocks: all within "
                "them; attention: its inner values; matmuls: all within blocks but the results of "
                "attention kernels and of a block's first, third, fifth... matrix product; budget: "
                "as little as lets the step fit into memory.budget");
  fields.field("segment", o.segment,
               "recompute blocks: blocks of which only the first one's input is kept; 0: the "
               "square root of their number",
               {.at_least = 0});
  fields.field("budget", o.budget, "recompute budget: most bytes at the peak of a step");
  fields.field("offload", o.offload,
               "what lies on the host: optimizer (states and update), parameters (of zero 3), "
               "activations",
               {.one_of = {"optimizer", "parameters", "activations"}});
  fields.field("delay", o.delay,
               "offload optimizer: from this step on the host updates while the device computes "
               "the next step, so gradients are one step old; 0: never",
               {.at_least = 0});
  fields.choice("stash", o.stash, {"exact", "bf16", "int8"},
                "how values wait for the backward pass: as they are, or rounded (the forward pass "
                "is not changed)");
  fields.field("pack_masks", o.pack_masks,
               "truth values kept for the backward pass take a bit each, not a byte");
  fields.field("window", o.window,
               "offload activations: tensors that are on their way to or from the host at a time",
               {.at_least = 1});
  fields.field("check_recompute", o.check_recompute,
               "compare the bits of what is computed again with those of the first time, and stop "
               "where they differ; reads every value, so it is slow");
  fields.field("keep_freed", o.keep_freed,
               "on a CPU: memory that a step frees stays with the process for the next one, which "
               "saves 4 to 6 % of its time; false: the system gets it back at once, for machines "
               "whose memory is short");
}

}  // namespace braid::memory
