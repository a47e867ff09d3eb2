// SPDX-License-Identifier: BSD-3-Clause
#include "plan/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "braid/core/error.h"
#include "braid/nn/options.h"
#include "braid/train/layout.h"

namespace braid::plan {
namespace {

using memory::Again;
using nn::ModelName;
using parallel::ScheduleKind;

void need_gpus(const Request& request) {
  if (request.gpus < 1)
    throw ConfigError({.what = fmt::format("{} GPUs to plan for", request.gpus),
                       .why = "a run needs at least one",
                       .fix = "--gpus 1"});
  if (request.gpus > request.cluster.gpus())
    throw ConfigError(
        {.what = fmt::format("{} GPUs asked for, {} has {} ({} nodes of {})", request.gpus,
                             request.cluster.name, request.cluster.gpus(), request.cluster.nodes,
                             request.cluster.gpus_per_node),
         .why = "a layout is planned for GPUs that are there",
         .fix =
             fmt::format("--gpus {}, or a cluster file with more nodes", request.cluster.gpus())});
}

int64_t batch_of(const Request& request) {
  if (request.global_batch > 0) return request.global_batch;
  const train::TrainOptions& train = request.options.train;
  if (!train.local_batch) return train::global_batch_of(train, 1);
  try {  // said a rank: as many as the config's own mesh shares the batch among
    const parallel::Mesh mesh(request.options.mesh, request.gpus, 0, static_cast<int>(train.zero));
    return train::global_batch_of(train, mesh.batch_ranks());
  } catch (const ConfigError&) {
    return train::global_batch_of(train, request.gpus);
  }
}

int64_t blocks_of_model(const train::RunOptions& options) {
  const auto model = nn::make_model(options.model, {.seed = static_cast<uint64_t>(options.seed),
                                                    .precision = policy_of(options.train),
                                                    .dry_params = true});
  return static_cast<int64_t>(model->blocks().size());
}

// A config of this mesh alone and one sample a rank, for the checks.
train::RunOptions bare(const train::RunOptions& options, const parallel::MeshOptions& mesh) {
  train::RunOptions checked = options;
  checked.mesh = mesh;
  checked.train.zero = 0;
  checked.train.global_batch.reset();
  checked.train.local_batch = 1;
  checked.train.micro_batch = 1;
  checked.memory.offload.clear();
  checked.memory.delay = 0;
  checked.parallel.schedule_file.clear();
  checked.parallel.schedule = ScheduleKind::one_f_one_b;
  checked.parallel.chunks = 1;
  checked.parallel.split.clear();
  return checked;
}

// What the trainer itself says to these axes.
class Allowed {
 public:
  Allowed(const train::RunOptions& options, int64_t blocks) : options_(options), blocks_(blocks) {}

  bool inner(int64_t tensor, int64_t context, int64_t expert) {
    if (tensor * context * expert == 1) return true;
    const auto [place, fresh] = known_.try_emplace({tensor, context, expert}, false);
    if (fresh)
      place->second =
          takes({.data = 1, .shard = 1, .tensor = tensor, .context = context, .expert = expert});
    return place->second;
  }
  // One that can be cut in two can be cut between any two blocks.
  bool pipeline(int64_t size) {
    if (size == 1) return true;
    if (size > blocks_) return false;
    if (!cuts_) cuts_ = takes({.data = 1, .shard = 1, .pipeline = 2});
    return *cuts_;
  }

 private:
  bool takes(parallel::MeshOptions mesh) const {
    mesh.order = options_.mesh.order;
    const int64_t world = mesh.tensor * mesh.context * mesh.expert * mesh.pipeline;
    try {
      train::check_layout(bare(options_, mesh), parallel::Mesh(mesh, world, 0));
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  }

  const train::RunOptions& options_;
  int64_t blocks_;
  std::map<std::array<int64_t, 3>, bool> known_;
  std::optional<bool> cuts_;
};

bool keeps_mesh(ModelName model, int64_t tensor, int64_t context, int64_t expert) {
  if (model == ModelName::mlp && tensor * context > 1) return false;
  return (model == ModelName::gpt || model == ModelName::llama) || expert == 1;
}

struct Left {  // out, of what could have been
  int64_t batch = 0, model = 0;
};

// Ranks that share the batch are `rest` of them: replicas, and states in pieces.
void add_stages(std::vector<Arrangement>& all, Arrangement place, int64_t rest, bool parameters) {
  place.mesh.data = rest;
  place.mesh.shard = 1;
  all.push_back(place);
  if (rest == 1 && parameters) {  // weights on the host are gathered as by zero 3
    place.zero = 3;
    all.push_back(place);
    return;
  }
  for (place.zero = 1; place.zero <= 3; ++place.zero)
    for (const int64_t shard : divisors(rest)) {
      if (shard == 1) continue;
      place.mesh.shard = shard;
      place.mesh.data = rest / shard;
      all.push_back(place);
    }
}

std::vector<std::string> left_out(const Left& left, const Base& base) {
  std::vector<std::string> notes;
  if (left.batch > 0)
    notes.push_back(
        fmt::format("{} left out: a global batch of {} does not divide by the ranks of data, shard "
                    "and expert",
                    number_text(left.batch, "mesh", "meshes"), base.batch));
  if (left.model > 0)
    notes.push_back(fmt::format("{} left out that the model does not go with: {}",
                                number_text(left.model, "mesh", "meshes"),
                                axes_text(base.options.model)));
  return notes;
}

[[noreturn]] void refuse_all(const Request& request, const Base& base, const Left& left) {
  if (left.batch > 0)
    throw ConfigError(
        {.what =
             fmt::format("no mesh of {} GPUs takes a global batch of {}", request.gpus, base.batch),
         .why = "the ranks of data, shard and expert share the batch evenly, and the other axes of "
                "this model do not take up the rest",
         .fix = fmt::format("--global-batch {}, or a number of GPUs that divides {}",
                            (base.batch / request.gpus + 1) * request.gpus, base.batch)});
  throw ConfigError({.what = fmt::format("no mesh of {} GPUs goes with this model", request.gpus),
                     .why = axes_text(base.options.model),
                     .fix = "take fewer GPUs, or a number with more divisors"});
}

}  // namespace

int64_t rows_of(const Choice& choice, const Base& base) {
  const parallel::MeshOptions& mesh = choice.mesh;
  return base.batch / (mesh.data.value_or(1) * mesh.shard.value_or(1) * mesh.expert);
}

bool host_holds(const Cluster& cluster, int64_t gpus, int64_t bytes) {
  const int64_t memory = cluster.host.memory.count;  // 0: not known
  return memory == 0 || bytes * std::min(gpus, cluster.gpus_per_node) <= memory;
}

std::string number_text(int64_t number, const char* one, const char* many) {
  return fmt::format("{} {}", number, number == 1 ? one : many);
}

std::string axes_text(const nn::ModelOptions& model) {
  switch (model.name) {
    case ModelName::mlp:
      return "an mlp is spread over data, shard and pipeline alone";
    case ModelName::gpt:
    case ModelName::llama:
      if (train::experts_of(model) > 0) return "heads, tokens, blocks and experts have to divide";
      break;
    case ModelName::vit:
    case ModelName::swinir:
    case ModelName::own:
      break;
  }
  return "heads, tokens or rows, and blocks have to divide";
}

std::vector<int64_t> divisors(int64_t number) {
  std::set<int64_t> found;
  for (int64_t i = 1; i * i <= number; ++i)
    if (number % i == 0) found.insert({i, number / i});
  return {found.begin(), found.end()};
}

Base base_of(const Request& request) {
  need_gpus(request);
  Base base{.options = request.options,
            .batch = batch_of(request),
            .room = request.memory > 0 ? request.memory : request.cluster.gpu.memory.count};
  base.options.train.global_batch = base.batch;
  base.options.train.local_batch.reset();
  base.options.memory.plan.clear();
  base.options.memory.limit = {};
  if (base.options.memory.recompute == Again::budget) base.options.memory.recompute = Again::none;
  if (base.options.train.micro_batch == 0) base.options.train.micro_batch.reset();
  base.blocks = blocks_of_model(base.options);
  return base;
}

std::vector<Again> recompute_levels(const train::RunOptions& options, int64_t blocks) {
  std::vector<Again> levels = {Again::none};
  if (options.model.name != ModelName::mlp) levels.push_back(Again::attention);
  if (options.memory.recompute == Again::matmuls) levels.push_back(Again::matmuls);
  if (blocks > 0) levels.push_back(Again::blocks);
  return levels;
}

// gpipe is never faster than 1f1b and never smaller: it is tried where the config says so.
std::vector<ScheduleKind> schedules_for(const train::RunOptions& options) {
  std::vector<ScheduleKind> kinds = {ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                     ScheduleKind::zb_h1,       ScheduleKind::zb_h2,
                                     ScheduleKind::zb_v,        ScheduleKind::naive};
  if (options.parallel.schedule == ScheduleKind::gpipe) kinds.push_back(ScheduleKind::gpipe);
  return kinds;
}

std::vector<std::vector<std::string>> offloads_for(const Request& request, int64_t zero) {
  const std::vector<std::string>& said = request.options.memory.offload;
  const bool parameters = std::find(said.begin(), said.end(), "parameters") != said.end();
  if (!request.offload)
    return parameters && zero != 3 ? std::vector<std::vector<std::string>>{{}}
                                   : std::vector<std::vector<std::string>>{said};
  std::vector<std::vector<std::string>> sets = {
      {}, {"optimizer"}, {"activations"}, {"optimizer", "activations"}};
  if (zero == 3) {
    sets.push_back({"optimizer", "parameters"});
    sets.push_back({"optimizer", "parameters", "activations"});
  }
  return sets;
}

bool costs_less(const Choice& less, const Choice& more) {
  const auto level = [](Again again) {
    return again == Again::none        ? 0
           : again == Again::attention ? 1
           : again == Again::matmuls   ? 2
                                       : 3;
  };
  if (level(less.recompute) > level(more.recompute)) return false;
  return std::all_of(less.offload.begin(), less.offload.end(), [&](const std::string& what) {
    return std::find(more.offload.begin(), more.offload.end(), what) != more.offload.end();
  });
}

Arrangements arrangements_of(const Request& request, const Base& base) {
  Arrangements found;
  Left left;
  Allowed allowed(base.options, base.blocks);
  const auto batch_divides = [&](int64_t ranks) { return base.batch % ranks == 0; };
  for (const int64_t pipeline : divisors(request.gpus))
    for (const int64_t tensor : divisors(request.gpus / pipeline))
      for (const int64_t context : divisors(request.gpus / pipeline / tensor))
        for (const int64_t expert : divisors(request.gpus / pipeline / tensor / context)) {
          const ModelName model = base.options.model.name;
          if (!keeps_mesh(model, tensor, context, expert)) continue;
          if (expert > 1 && train::experts_of(base.options.model) == 0) continue;
          const int64_t rest = request.gpus / (pipeline * tensor * context * expert);
          Arrangement place;
          place.mesh = {.data = rest,
                        .shard = 1,
                        .tensor = tensor,
                        .context = context,
                        .pipeline = pipeline,
                        .expert = expert};
          place.mesh.order = base.options.mesh.order;
          if (!batch_divides(rest * expert)) {
            ++left.batch;
          } else if (!allowed.pipeline(pipeline) || !allowed.inner(tensor, context, expert)) {
            ++left.model;
          } else {
            place.rows = base.batch / (rest * expert);
            add_stages(found.all, place, rest, request.offload);
          }
        }
  if (found.all.empty()) refuse_all(request, base, left);
  found.notes = left_out(left, base);
  return found;
}

}  // namespace braid::plan
