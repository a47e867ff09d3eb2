// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "braid/core/region.h"
#include "plan/published_eager.h"
#include "plan/published_stretch.h"

namespace braid::plan {
namespace {

using memory::Operator;

bool is_product(const Operator& op) {
  return op.name == "aten::mm" || op.name == "aten::addmm" || op.name == "aten::linear" ||
         op.name == "braid::linear_gelu";
}

Prices prices_for(const PublishedTime& row, const CostModel& model) {
  Prices prices = prices_of(model);
  prices.op = [&row, &model](const Operator& op) {
    const std::vector<Operator> parts = as_published(row, op);
    OpCost sum = model.cost(parts.front());
    for (size_t i = 1; i < parts.size(); ++i) {
      const OpCost cost = model.cost(parts[i]);
      sum.seconds += cost.seconds;
      sum.host += cost.host;
      sum.kernels += cost.kernels;
    }
    if (op.recomputed && is_product(op)) sum.seconds *= row.products_again;
    return sum;
  };
  return prices;
}

// transformer.h.3.mlp.c_fc is of transformer.h.3.
std::string block_of(const std::string& module) {
  for (size_t dot = module.find('.'); dot != std::string::npos; dot = module.find('.', dot + 1))
    if (dot + 1 < module.size() && std::isdigit(static_cast<unsigned char>(module[dot + 1])) != 0)
      return module.substr(0, module.find('.', dot + 1));
  return {};
}

struct BlockSeconds {
  double forward = 0, again = 0;
};

BlockSeconds block_seconds(const RankTrace& trace, const Prices& prices) {
  std::set<std::string> blocks;
  for (const Operator& op : trace.operators)
    if (op.recomputed) blocks.insert(block_of(op.module));
  blocks.erase("");
  BlockSeconds sum;
  for (const Operator& op : trace.operators) {
    if (op.recomputed) sum.again += prices.op(op).seconds;
    if (!op.recomputed && !op.backward && blocks.contains(block_of(op.module)))
      sum.forward += prices.op(op).seconds;
  }
  return sum;
}

// Of a block's two sums over the tensor axis braid computes one again.
double skipped_sums(const RankTrace& trace, const Prices& prices) {
  double most = 0;
  size_t forwards = 0;
  for (const Message& message : trace.messages)
    if (message.kind == comm::Kind::all_reduce && message.group.find("tensor") != std::string::npos)
      most = std::max(most, prices.message(message, -1));
  std::set<std::string> blocks;
  for (const Operator& op : trace.operators) {
    if (op.recomputed) blocks.insert(block_of(op.module));
  }
  for (const RegionMark& region : trace.regions) forwards += region.name == "forward" ? 1 : 0;
  return most * static_cast<double>(blocks.size() * forwards);
}

// The runs of these tables computed whole blocks again. braid stops where the last value that the
// backward pass wants is there.
Prices with_whole_blocks(const LayoutRun& layout, const Prices& prices) {
  if (layout.options.memory.recompute != memory::Again::blocks) return prices;
  double whole = 0, again = 0;
  for (const RankRun& rank : layout.ranks) {
    const BlockSeconds blocks = block_seconds(rank.trace, prices);
    whole += blocks.forward + skipped_sums(rank.trace, prices);
    again += blocks.again;
  }
  if (again <= 0) return prices;
  Prices more = prices;
  more.op = [base = prices.op, factor = whole / again](const Operator& op) {
    OpCost cost = base(op);
    if (op.recomputed) cost.seconds *= factor;
    return cost;
  };
  return more;
}

CostModel model_for(const PublishedTime& row, const Cluster& cluster) {
  return cost_model(cluster, row.options, row.world);
}

int64_t replicas_of(const PublishedTime& row) {
  return row.world / (row.options.mesh.tensor * row.options.mesh.pipeline);
}

Extent extent_of(const PublishedTime& row) {
  const train::TrainOptions& how = row.options.train;
  const train::RunOptions& run = row.options;
  if (run.model.name != nn::ModelName::gpt) return {};
  const int64_t chunks = std::max<int64_t>(1, run.parallel.chunks);
  return {run.mesh.pipeline, *how.global_batch / *how.micro_batch / replicas_of(row),
          run.model.gpt.layers / (run.mesh.pipeline * chunks)};
}

double spans_of(const StepTime& time, std::string_view region) {
  double sum = 0;
  for (const TimeSpan& span : time.timeline)
    if (span.stream == "regions" && span.name == region) sum += span.end - span.begin;
  return sum;
}

// Of one block: the difference that two more of them make.
PredictedTime predict_layer(const PublishedTime& row, const Prices& prices) {
  const bool forward = row.figure == Figure::layer_forward;
  std::array<double, 2> seconds = {};
  PredictedTime predicted;
  for (size_t i = 0; i < seconds.size(); ++i) {
    train::RunOptions run = row.options;
    run.model.gpt.layers = i == 0 ? 2 : 4;
    const LayoutRun layout = dry_layout(run, row.world, {.evaluation = false});
    const StepTime time = simulate(layout, with_whole_blocks(layout, prices), {.timeline = true});
    seconds[i] = spans_of(time, forward ? regions::forward : regions::backward);
    predicted.parts = time.parts;
  }
  predicted.value = (seconds[1] - seconds[0]) / 2 * 1e3;
  return predicted;
}

double in_unit(const PublishedTime& row, double seconds) {
  const train::TrainOptions& how = row.options.train;
  const double samples = static_cast<double>(train::global_batch_of(
      how, row.world / (row.options.mesh.tensor * row.options.mesh.pipeline)));
  switch (row.figure) {
    case Figure::tokens:
      return samples * static_cast<double>(row.options.data.sequence) / seconds /
             static_cast<double>(row.world);
    case Figure::samples:
      return samples / seconds;
    default:
      return seconds;
  }
}

}  // namespace

std::string unit_of(Figure figure) {
  constexpr std::array<const char*, 5> units = {"s", "tokens/s a GPU", "samples/s", "ms forward",
                                                "ms backward"};
  return units.at(static_cast<size_t>(figure));
}

Cluster cluster_of(const PublishedTime& row) {
  Cluster cluster = load_cluster(row.cluster);
  if (row.gpus_per_node > 0) cluster.gpus_per_node = row.gpus_per_node;
  if (row.bandwidth > 0) cluster.gpu.bandwidth = row.bandwidth;
  return cluster;
}

PredictedTime predict(const PublishedTime& row) { return predict(row, cluster_of(row)); }

PredictedTime predict(const PublishedTime& row, const Cluster& cluster) {
  const CostModel model = model_for(row, cluster);
  const Prices prices = prices_for(row, model);
  if (row.figure == Figure::layer_forward || row.figure == Figure::layer_backward)
    return predict_layer(row, prices);
  const Extent whole = extent_of(row);
  PredictedTime predicted;
  const auto parts = [&](const Extent& extent) {
    const bool same = extent == whole;
    const train::RunOptions run = same ? row.options : resized(row.options, whole, extent);
    const int64_t world = row.world / whole.stages * extent.stages;
    const LayoutRun layout = dry_layout(run, world, {.evaluation = false});
    const StepTime time = simulate(layout, with_whole_blocks(layout, prices));
    predicted.launch_bound |= time.host_seconds > 0.9 * time.seconds;
    return time.parts;
  };
  predicted.parts = stretched(whole, parts);
  predicted.value = in_unit(row, total(predicted.parts));
  return predicted;
}

}  // namespace braid::plan
