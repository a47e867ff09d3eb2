// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "braid/core/config.h"
#include "braid/core/error.h"

namespace braid::train {
namespace {

using parallel::Axis;

bool is_part_of(std::string_view name, std::string_view block) {
  return name == block ||
         (name.size() > block.size() && name.starts_with(block) && name[block.size()] == '.');
}

// What each block costs; what stands before the first block counts to it, what stands behind the
// last one to that.
struct BlockCosts {
  std::vector<double> flops, bytes;
};

BlockCosts costs_of(const nn::Model& whole, const std::vector<std::string>& blocks,
                    double element) {
  BlockCosts costs{std::vector<double>(blocks.size(), 0), std::vector<double>(blocks.size(), 0)};
  size_t at = 0;
  for (const nn::LayerRow& row : whole.layers()) {
    for (size_t i = at; i < blocks.size(); ++i)
      if (is_part_of(row.name, blocks[i])) at = i;
    costs.flops[at] += row.flops;
    costs.bytes[at] += element * static_cast<double>(row.parameters);
  }
  return costs;
}

ConfigError wrong_split(const std::vector<int64_t>& split, size_t stages, int64_t blocks) {
  return ConfigError(
      {.what = fmt::format("parallel.split = [{}] for {} stages of {} blocks",
                           fmt::join(split, ", "), stages, blocks),
       .why = "it says how many blocks each stage has, at least one, and they add up to all",
       .fix = "leave parallel.split out: stages of even FLOPs"});
}

// Begin of each stage and the end.
std::vector<int64_t> bounds_by_hand(const std::vector<int64_t>& split, size_t stages,
                                    int64_t blocks) {
  std::vector<int64_t> bounds = {0};
  for (const int64_t count : split) {
    if (count < 1) throw wrong_split(split, stages, blocks);
    bounds.push_back(bounds.back() + count);
  }
  if (split.size() != stages || bounds.back() != blocks) throw wrong_split(split, stages, blocks);
  return bounds;
}

void need_blocks(const nn::Model& model, size_t stages, size_t blocks, int64_t pipeline) {
  if (stages <= blocks) return;
  throw ConfigError(
      {.what = fmt::format("mesh.pipeline = {} makes {} stages of the {} blocks of {}", pipeline,
                           stages, blocks, model.name()),
       .why = "a stage has at least one block",
       .fix = fmt::format("set mesh.pipeline so that there are at most {} stages, or take a "
                          "parallel.schedule with one stage a rank",
                          blocks)});
}

std::unique_ptr<nn::Model> without_memory(const RunOptions& options) {
  return nn::make_model(options.model, {.seed = static_cast<uint64_t>(options.seed),
                                        .precision = policy_of(options.train),
                                        .dry_params = true});
}

std::vector<int64_t> bounds_by_cost(const RunOptions& options,
                                    const std::vector<std::string>& blocks, int stages) {
  const auto whole = without_memory(options);
  if (whole->blocks() != blocks)
    throw ConfigError({.what = "the model of this program is not that of the config",
                       .why = "what its blocks cost is not known",
                       .fix = "say how many blocks each stage has: parallel.split"});
  const auto element = static_cast<double>(c10::elementSize(policy_of(options.train).param));
  const BlockCosts costs = costs_of(*whole, blocks, element);
  return parallel::split_blocks(costs.flops, stages, costs.bytes);
}

}  // namespace

std::vector<int> Stages::of(int rank) const {
  std::vector<int> held;
  for (size_t stage = 0; stage < rank_of.size(); ++stage)
    if (rank_of[stage] == rank) held.push_back(static_cast<int>(stage));
  return held;
}

int64_t micros_of(const TrainOptions& options, int64_t batch_ranks) {
  const int64_t rows = (global_batch_of(options, batch_ranks) + batch_ranks - 1) / batch_ranks;
  const int64_t micro = std::max<int64_t>(options.micro_batch.value_or(rows), 1);  // auto: any
  return std::max<int64_t>((rows + micro - 1) / micro, 1);
}

parallel::Schedule schedule_of(const RunOptions& options, int64_t pipeline, int64_t micros) {
  const parallel::ParallelOptions& given = options.parallel;
  if (given.schedule_file.empty())
    return parallel::make_schedule({.kind = given.schedule,
                                    .ranks = static_cast<int>(pipeline),
                                    .micros = static_cast<int>(micros),
                                    .chunks = static_cast<int>(given.chunks)});
  const parallel::Schedule own = parallel::schedule_from(Config::load(given.schedule_file));
  if (own.ranks != pipeline || own.micros != micros)
    throw ConfigError(
        {.what = fmt::format("{} is for {} ranks and {} micro-batches, but mesh.pipeline = {} and "
                             "a step has {} micro-batches",
                             given.schedule_file, own.ranks, own.micros, pipeline, micros),
         .why = "a list of actions holds for one number of both",
         .fix = fmt::format("set mesh.pipeline={} and train.micro_batch so that there are {}, or "
                            "leave parallel.schedule_file out",
                            own.ranks, own.micros)});
  return own;
}

Stages stages_of(const RunOptions& options, const parallel::Mesh& mesh, const nn::Model& model) {
  const std::vector<std::string> blocks = model.blocks();
  const auto count = static_cast<int64_t>(blocks.size());
  const int64_t pipeline = mesh.size(Axis::pipeline);
  if (pipeline == 1) return {.blocks = {{0, count}}, .rank_of = {0}};
  Stages stages;
  stages.rank_of =
      schedule_of(options, pipeline, micros_of(options.train, mesh.batch_ranks())).rank_of;
  const size_t wanted = stages.rank_of.size();
  need_blocks(model, wanted, blocks.size(), pipeline);
  const std::vector<int64_t> bounds =
      options.parallel.split.empty() ? bounds_by_cost(options, blocks, static_cast<int>(wanted))
                                     : bounds_by_hand(options.parallel.split, wanted, count);
  for (size_t i = 0; i < wanted; ++i) stages.blocks.push_back({bounds[i], bounds[i + 1]});
  return stages;
}

Stages stages_of(const RunOptions& options, const parallel::Mesh& mesh) {
  if (mesh.size(Axis::pipeline) == 1) return {.blocks = {{0, 0}}, .rank_of = {0}};
  return stages_of(options, mesh, *without_memory(options));
}

int64_t experts_of(const nn::ModelOptions& model) {
  return model.name == nn::ModelName::gpt     ? model.gpt.moe.experts
         : model.name == nn::ModelName::llama ? model.llama.moe.experts
                                              : 0;
}

nn::Layout layout_of(const RunOptions& options, const Ranks& ranks) {
  const parallel::Mesh& mesh = ranks.mesh;
  const parallel::ParallelOptions& given = options.parallel;
  nn::Layout layout;
  layout.tensor = mesh.group(ranks.world, {Axis::tensor});
  layout.sequence = given.sequence && layout.tensor.size() > 1;
  layout.regather = given.regather && layout.sequence;
  layout.overlap = layout.sequence ? given.overlap : 1;
  layout.context = mesh.group(ranks.world, {Axis::context});
  layout.method = given.context;
  layout.expert = mesh.group(ranks.world, {Axis::expert});
  if (mesh.size(Axis::pipeline) == 1) return layout;
  const Stages stages = stages_of(options, mesh);
  for (const int stage : stages.of(static_cast<int>(mesh.index(Axis::pipeline))))
    layout.stages.push_back(stages.blocks[static_cast<size_t>(stage)]);
  layout.later = ranks.later;
  return layout;
}

}  // namespace braid::train
