// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/options.h"

namespace braid::parallel {

void describe(Fields& fields, ParallelOptions& o) {
  fields.field("sequence", o.sequence,
               "mesh.tensor > 1: norms and residuals hold a share of the tokens: less memory for "
               "the same traffic");
  fields.field("regather", o.regather,
               "with sequence: keep the share of a norm's output and gather it again in the "
               "backward pass: less memory for two more gathers a layer");
  fields.field("overlap", o.overlap,
               "with sequence: pieces in which tokens travel while matmuls run; 1: one after the "
               "other",
               {.at_least = 1, .at_most = 10'000});
  fields.choice("context", o.context, {"gather", "ring", "all_to_all"},
                "mesh.context > 1: how attention sees the tokens of other ranks: their keys and "
                "values are gathered, go round, or tokens are exchanged for heads");
  fields.choice("schedule", o.schedule, schedule_kinds(),
                "mesh.pipeline > 1: in which order a rank runs its micro-batches");
  fields.field("schedule_file", o.schedule_file,
               "a schedule of your own, a list of actions for each rank (YAML); empty: that of "
               "schedule");
  fields.field("chunks", o.chunks, "schedule interleaved: stages per rank",
               {.at_least = 1, .at_most = 10'000});
  fields.field("split", o.split,
               "mesh.pipeline > 1: blocks of each stage, [3, 5]; empty: stages of even FLOPs");
}

}  // namespace braid::parallel
