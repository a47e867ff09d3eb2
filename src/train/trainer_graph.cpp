// SPDX-License-Identifier: BSD-3-Clause
// What a run says of its step as a CUDA graph (train/graph.h).
#include <fmt/format.h>

#include "train/trainer_impl.h"

namespace braid::train {

void Trainer::Impl::check_graph() const {
  if (options.train.graph != UseGraph::on || parts.no_graph.empty()) return;
  throw ConfigError({.what = "train.graph = on, but this step cannot be captured",
                     .why = parts.no_graph,
                     .fix = "--set train.graph=auto: the step then runs operator by operator"});
}

// Once: that steps are replayed, or why they are not.
void Trainer::Impl::tell_of_graph() {
  if (graph_told || options.train.graph == UseGraph::off || !device.is_cuda()) return;
  const bool captures = parts.graph != nullptr && parts.graph->failure().empty();
  if (captures && parts.graph->replays() == 0) return;
  graph_told = true;
  const std::string& reason = parts.graph != nullptr ? parts.graph->failure() : parts.no_graph;
  if (!captures && options.train.graph == UseGraph::on)
    throw ConfigError({.what = "train.graph = on, but the capture of a step failed",
                       .why = reason,
                       .fix = "--set train.graph=auto: the step then runs operator by operator"});
  if (!ranks.first()) return;
  if (captures)
    log.info(fmt::format("from step {} on steps are replayed as a CUDA graph", step + 1));
  else
    log.info("steps are not replayed as a CUDA graph: " + reason);
}

}  // namespace braid::train
