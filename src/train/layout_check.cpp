// SPDX-License-Identifier: BSD-3-Clause
// What cannot be spread over ranks, each in a sentence; docs/layouts.md lists them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "braid/core/error.h"
#include "braid/memory/instruments.h"
#include "braid/train/layout.h"
#include "braid/train/measure.h"
#include "braid/train/session.h"

namespace braid::train {
namespace {

using nn::ModelName;
using parallel::Axis;

ConfigError no_axis(Axis axis, int64_t size, const std::string& model, const char* why) {
  return ConfigError(
      {.what = fmt::format("mesh.{} = {} with model {}", to_text(axis), size, model),
       .why = why,
       .fix = fmt::format("set mesh.{}=1: its ranks then share the batch", to_text(axis))});
}

std::string divisors_of(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t i = 1; i <= number; ++i)
    if (number % i == 0) divisors.push_back(i);
  return fmt::format("{}", fmt::join(divisors, ", "));
}

void need_divisor(const char* axis, int64_t ranks, const char* key, int64_t number,
                  const char* why) {
  if (number % ranks == 0) return;
  throw ConfigError(
      {.what = fmt::format("{} = {} does not divide {} = {}", axis, ranks, key, number),
       .why = why,
       .fix = fmt::format("set {} to one of {}", axis, divisors_of(number))});
}

const char* model_word(ModelName name) {
  constexpr const char* words[] = {"mlp", "vit", "swinir", "gpt", "llama", "own"};
  return words[static_cast<size_t>(name)];
}

int64_t heads_of(const nn::ModelOptions& model) {
  switch (model.name) {
    case ModelName::vit:
      return model.vit.heads;
    case ModelName::gpt:
      return model.gpt.heads;
    case ModelName::llama:
      return model.llama.heads;
    case ModelName::mlp:
    case ModelName::swinir:
    case ModelName::own:
      break;
  }
  return 0;
}

void check_tensor(const nn::ModelOptions& model, int64_t tensor) {
  if (tensor == 1) return;
  if (model.name == ModelName::mlp)
    throw no_axis(Axis::tensor, tensor, "mlp", "a network of points has no heads to split");
  if (model.name == ModelName::swinir) {
    for (const int64_t heads : model.swinir.heads)
      need_divisor("mesh.tensor", tensor, "model.heads", heads,
                   "a rank of the tensor axis holds whole attention heads");
    return;
  }
  need_divisor("mesh.tensor", tensor, "model.heads", heads_of(model),
               "a rank of the tensor axis holds whole attention heads");
  if (model.name != ModelName::llama || tensor % model.llama.kv_heads == 0) return;
  need_divisor("mesh.tensor", tensor, "model.kv_heads", model.llama.kv_heads,
               "a rank holds whole key and value heads, or several ranks hold the same one");
}

void check_context(const RunOptions& options, int64_t tensor, int64_t context) {
  if (context == 1) return;
  if (options.model.name == ModelName::mlp)
    throw no_axis(Axis::context, context, "mlp", "a point has neither tokens nor rows to share");
  const bool heads = options.parallel.context == parallel::ContextMethod::all_to_all &&
                     heads_of(options.model) > 0;
  if (heads)
    need_divisor("mesh.context", context, "heads of a rank", heads_of(options.model) / tensor,
                 "parallel.context: all_to_all exchanges tokens for whole heads");
}

void check_expert(const nn::ModelOptions& model, int64_t expert) {
  if (expert == 1) return;
  const int64_t experts = experts_of(model);
  if (experts == 0)
    throw no_axis(Axis::expert, expert, model_word(model.name), "it has no experts to share");
  need_divisor("mesh.expert", expert, "model.moe.experts", experts,
               "each rank of the expert axis holds as many experts");
}

void check_schedule(const RunOptions& options, const parallel::Mesh& mesh) {
  const int64_t pipeline = mesh.size(Axis::pipeline);
  if (pipeline == 1) return;
  const parallel::ScheduleKind kind = options.parallel.schedule;
  if (options.parallel.schedule_file.empty() &&
      (kind == parallel::ScheduleKind::pipedream || kind == parallel::ScheduleKind::pipedream_2bw))
    throw ConfigError(
        {.what = fmt::format("parallel.schedule = {} in a training run", to_text(kind)),
         .why = "it updates weights between micro-batches, so that clipping, averages and "
                "checkpoints have no step to stand on",
         .fix = "take 1f1b, interleaved or zb_h1; braid/parallel/pipedream.h runs it in a program "
                "of your own"});
  const parallel::Schedule schedule =
      schedule_of(options, pipeline, micros_of(options.train, mesh.batch_ranks()));
  const bool updates = std::any_of(
      schedule.lists.begin(), schedule.lists.end(), [](const std::vector<parallel::Action>& list) {
        return std::any_of(list.begin(), list.end(), [](const parallel::Action& action) {
          return action.act == parallel::Act::update;
        });
      });
  if (updates)
    throw ConfigError(
        {.what = fmt::format("{} updates weights within a step", options.parallel.schedule_file),
         .why = "a step of the trainer ends with its only update",
         .fix = "take the update actions out of it"});
}

// One rank of each stage, and the last one of each axis, which has the smallest shares.
void check_models(const RunOptions& options, const parallel::Mesh& mesh) {
  std::set<int> kinds;
  const auto lines = mesh.all_groups({Axis::pipeline});
  for (const auto& line : {lines.front(), lines.back()}) kinds.insert(line.begin(), line.end());
  for (const int rank : kinds) {
    const parallel::Mesh there(mesh.sizes(), mesh.world(), rank,
                               static_cast<int>(options.train.zero));
    std::optional<memory::Instruments> dry(std::in_place, memory::InstrumentOptions{.dry = true});
    const auto model =  // the second copy of tied weights has memory unless all is dry
        nn::make_model(options.model, {.seed = static_cast<uint64_t>(options.seed),
                                       .precision = policy_of(options.train),
                                       .dry_params = true,
                                       .layout = layout_of(options, dry_ranks(there))});
    dry.reset();
    // Asks for shares of tokens or rows, too: one that would be empty is refused.
    const auto carried = model->carried(empty_batch(options, 1, c10::kMeta).input);
    if (mesh.size(Axis::pipeline) > 1 && carried.empty())
      throw no_axis(Axis::pipeline, mesh.size(Axis::pipeline), model->name(),
                    "it does not say how it is cut into stages");
  }
}

// Its layers are the program's: what they are spread over, its own code says.
void check_own(const RunOptions& options, const parallel::Mesh& mesh) {
  for (const Axis axis : {Axis::tensor, Axis::context, Axis::expert})
    if (mesh.size(axis) > 1)
      throw no_axis(axis, mesh.size(axis), options.model.own.of + " of the program's own",
                    "the trainer cannot split its layers");
  check_schedule(options, mesh);
}

}  // namespace

void check_layout(const RunOptions& options, const parallel::Mesh& mesh) {
  if (mesh.world() == mesh.batch_ranks() && mesh.size(Axis::expert) == 1) return;
  if (options.model.name == ModelName::own) return check_own(options, mesh);
  check_tensor(options.model, mesh.size(Axis::tensor));
  check_context(options, mesh.size(Axis::tensor), mesh.size(Axis::context));
  check_expert(options.model, mesh.size(Axis::expert));
  check_schedule(options, mesh);
  check_models(options, mesh);
}

}  // namespace braid::train
