// SPDX-License-Identifier: BSD-3-Clause
// From the flags of `braid plan` to a request, with a sentence for what cannot be asked.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "braid/core/units.h"
#include "braid/launch/environment.h"
#include "braid/plan/present.h"
#include "cli/plan.h"

namespace braid::cli {
namespace {

constexpr int64_t on_a_page = 100;

bool tells_progress(const PlanArguments& arguments) {
  return !arguments.json && launch::environment().stderr_is_tty;
}

plan::Cluster named_cluster(const std::string& name) {
  if (!name.empty()) return plan::load_cluster(name);
  throw ConfigError(
      {.what = "no machine was named",
       .why = "what fits and how fast it runs depends on the GPU and on the links",
       .fix = fmt::format("--cluster one of {}, or a file that braid bench kernels -o made",
                          fmt::join(plan::known_clusters(), ", "))});
}

// As the config says, or a node.
int64_t gpus_of(const train::RunOptions& options, const plan::Cluster& cluster) {
  const parallel::MeshOptions& mesh = options.mesh;
  int64_t ranks = 1;
  for (const int64_t size : {mesh.tensor, mesh.context, mesh.pipeline, mesh.expert,
                             mesh.data.value_or(1), mesh.shard.value_or(1)}) {
    if (ranks > cluster.gpus()) break;  // refused as too many: the product may not fit an integer
    ranks *= size;
  }
  return mesh.data || mesh.shard ? ranks : std::max(cluster.gpus_per_node, ranks);
}

void check_gpus(const char* flag, int64_t gpus, const plan::Cluster& cluster) {
  if (gpus >= 1 && gpus <= cluster.gpus()) return;
  throw ConfigError(
      {.what = fmt::format("{} {}", flag, gpus),
       .why = fmt::format("{} has {} GPU{}: {} node{} of {}", cluster.name, cluster.gpus(),
                          cluster.gpus() == 1 ? "" : "s", cluster.nodes,
                          cluster.nodes == 1 ? "" : "s", cluster.gpus_per_node),
       .fix = fmt::format("a number from 1 to {}, or another --cluster", cluster.gpus())});
}

int64_t memory_asked(const std::string& text, const plan::Gpu& gpu) {
  if (text.empty()) return 0;
  const std::optional<Bytes> bytes = parse_bytes(text);
  if (bytes && bytes->count > 0 && bytes->count <= gpu.memory.count) return bytes->count;
  throw ConfigError(
      {.what = fmt::format("--memory {}", text),
       .why = !bytes ? "that is no size" : fmt::format("{} has {}", gpu.name, to_text(gpu.memory)),
       .fix = fmt::format("a size above 0 and up to that, such as --memory {}",
                          exact_text(gpu.memory))});
}

void take_batch(plan::Request& request, const std::optional<int64_t>& batch) {
  if (!batch) return;
  constexpr int64_t most = 1'000'000'000;
  if (*batch < 1 || *batch > most)
    throw ConfigError({.what = fmt::format("--global-batch {}", *batch),
                       .why = fmt::format("a step trains on at least one sample, and on at most {}",
                                          with_commas(most)),
                       .fix = "--global-batch with a number between them"});
  request.global_batch = *batch;
  request.options.train.local_batch.reset();
  request.options.train.global_batch = batch;
}

}  // namespace

plan::Request plan_request(const PlanArguments& arguments) {
  plan::Request request;
  request.options = arguments.config.load();
  request.options.run.spec = arguments.config.spec;
  request.cluster = named_cluster(arguments.cluster);
  request.gpus = arguments.gpus.value_or(gpus_of(request.options, request.cluster));
  check_gpus("--gpus", request.gpus, request.cluster);
  if (arguments.cheapest > 0) check_gpus("--cheapest", arguments.cheapest, request.cluster);
  for (const int64_t gpus : arguments.scaling) check_gpus("--scaling", gpus, request.cluster);
  request.memory = memory_asked(arguments.memory, request.cluster.gpu);
  take_batch(request, arguments.global_batch);
  request.precisions = arguments.precisions;
  for (const std::string& name : request.precisions) precision(name);  // refuses unknown ones
  request.offload = !arguments.no_offload;
  request.seconds = arguments.seconds;
  // A page has room for more than a terminal.
  request.most_plans = std::max<int64_t>(arguments.top, arguments.html.empty() ? 1 : on_a_page);
  if (tells_progress(arguments))
    request.progress = [](int64_t gpus, int64_t done, int64_t all) {
      fmt::print(stderr, "\r{} of {} choices on {} GPU{} run dry ", done, all, gpus,
                 gpus == 1 ? "" : "s");
      std::fflush(stderr);
    };
  return request;
}

void end_plan_progress(const PlanArguments& arguments) {
  if (tells_progress(arguments)) fmt::print(stderr, "\r{:60}\r", "");
}

plan::Found plan_as_is(const plan::Request& request) {
  plan::Choice choice = plan::choice_of(request.options, request.gpus);
  plan::Found found;
  found.choices = found.dry_runs = 1;
  if (choice.micro_batch == 0) {  // auto
    const plan::Answer answer = plan::largest_micro_batch(request, choice);
    choice.micro_batch = std::max<int64_t>(answer.value, 1);
  }
  found.plans = {plan::evaluate(request, choice)};
  return found;
}

}  // namespace braid::cli
