// SPDX-License-Identifier: BSD-3-Clause
// How a model is spread over ranks; as it is, one rank holds all of it. An axis of one rank changes
// nothing.
//
//   nn::Build build{.seed = 1, .layout = {.tensor = mesh.group(world, {parallel::Axis::tensor})}};
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/param.h"
#include "braid/kernels/deferred.h"
#include "braid/parallel/context.h"

namespace braid::nn {

struct Layout {
  comm::Group tensor = {};   // heads, hidden widths and the vocabulary are split over it
  bool sequence = false;     // norms and residuals hold a share of the tokens over tensor, too
  bool regather = false;     // with sequence: a norm's output is kept as a share and gathered again
                             // in the backward pass
  int64_t overlap = 1;       // pieces in which tokens of tensor travel while matmuls run
  comm::Group context = {};  // tokens, or rows of images, are spread over it
  parallel::ContextMethod method = parallel::ContextMethod::gather;
  comm::Group expert = {};         // experts of a mixture are spread over it
  std::vector<Range> stages = {};  // runs of blocks that this rank holds; empty: all blocks
  // Gradients of weights that a pipeline wants later; null: they come with those of the input.
  std::shared_ptr<kernels::Deferred> later = {};

  bool holds(int64_t block) const {
    for (const Range& stage : stages)
      if (block >= stage.begin && block < stage.end) return true;
    return stages.empty();
  }
  bool holds_first() const { return holds(0); }
};

}  // namespace braid::nn
