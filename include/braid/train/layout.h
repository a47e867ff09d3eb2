// SPDX-License-Identifier: BSD-3-Clause
// How a config spreads its model over the ranks of a run: which blocks are a stage, who holds them,
// and in which order they run. What cannot be spread is refused here, before anything starts.
//
//   nn::Build build{.seed = 1, .layout = train::layout_of(options, ranks)};
//   train::check_layout(options, mesh);   // ConfigError: one sentence
#pragma once
#include <cstdint>
#include <vector>

#include "braid/core/param.h"
#include "braid/nn/layout.h"
#include "braid/nn/model.h"
#include "braid/parallel/mesh.h"
#include "braid/parallel/schedule.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"

namespace braid::train {

struct Stages {
  std::vector<Range> blocks;            // of each stage; one stage: the whole model
  std::vector<int> rank_of;             // the rank of the pipeline axis that runs it
  std::vector<int> of(int rank) const;  // ascending
};
// By parallel.split, else of even FLOPs.
Stages stages_of(const RunOptions& options, const parallel::Mesh& mesh);  // of the config's model
// Of a model that may be one of your own, or a part of it: parallel.split says how then.
Stages stages_of(const RunOptions& options, const parallel::Mesh& mesh, const nn::Model& model);

// Micro-batches of a step.
int64_t micros_of(const TrainOptions& options, int64_t batch_ranks);
parallel::Schedule schedule_of(const RunOptions& options, int64_t pipeline, int64_t micros);

// Whether steps of such a run on GPUs are replayed as a CUDA graph.
bool replays_steps(const RunOptions& options, int64_t world);

int64_t experts_of(const nn::ModelOptions& model);  // of a layer; 0: it has no mixtures
nn::Layout layout_of(const RunOptions& options, const Ranks& ranks);

// Throws ConfigError for what cannot be spread over this mesh. Builds each rank's kind of model
// without memory: what a layer refuses is found here, too.
void check_layout(const RunOptions& options, const parallel::Mesh& mesh);

}  // namespace braid::train
