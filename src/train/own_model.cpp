// SPDX-License-Identifier: BSD-3-Clause
#include "train/own_model.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "braid/core/error.h"
#include "braid/memory/instruments.h"
#include "train/own_model_cast.h"

namespace braid::train {
namespace {

using memory::Again;
using nn::ModelName;

bool same_params(const std::vector<Param>& a, const std::vector<Param>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Param& x, const Param& y) {
    return x.name == y.name && x.tensor.sizes() == y.tensor.sizes();
  });
}

// Whether the section `model` of the config makes a model of these sizes.
bool is_described(const nn::Model& model, const RunOptions& options) {
  const nn::Build* made = model.build();
  if (made == nullptr || options.model.name == ModelName::own) return false;
  nn::Build like = *made;
  like.dry_params = true;
  try {
    const memory::Instruments dry({.dry = true});
    const auto other = nn::make_model(options.model, like);
    return other->name() == model.name() && same_params(other->params(), model.params());
  } catch (const ConfigError&) {  // of a model that was not built
    return false;
  }
}

// What an option asks of a model, and whether this one has it.
struct Demand {
  bool asked;
  bool met;
  std::string option;
  const char* why;
  std::string fix;
};

bool casts(const Precision& policy) {
  return policy.param == policy.compute || c10::elementSize(policy.compute) == 2;
}

// For a model of the program's own class.
std::vector<Demand> demands_of(const nn::Model& model, const RunOptions& options,
                               const Ranks& ranks) {
  const TrainOptions& train = options.train;
  const memory::MemoryOptions& memory = options.memory;
  const bool blocks = !model.blocks().empty();
  const bool sharded = train.zero == 3 && (ranks.mesh.size(parallel::Axis::shard) > 1 ||
                                           memory.offloads("parameters"));
  const Precision policy = policy_of(train);
  constexpr const char* follows = "or return the nn::Build that it follows from nn::Model::build()";
  return {
      {sharded, blocks, "train.zero = 3",
       "weights are gathered block by block, and the model names no blocks",
       "override nn::Model::blocks() and run each block with run_block(pass.blocks, ...), or set "
       "train.zero to 1 or 2"},
      {memory.recompute != Again::none && memory.recompute != Again::budget &&
           memory.recompute != Again::attention,
       blocks, "memory.recompute",
       "blocks are computed again one by one, and the model names no blocks",
       "override nn::Model::blocks() and run them with nn::run_blocks(pass, ...), or set "
       "memory.recompute to none"},
      {memory.recompute == Again::budget, false, "memory.recompute = budget",
       "what to compute again is found by dry runs of the config's model",
       "set memory.recompute to blocks, matmuls or none"},
      {memory.pack_masks, false, "memory.pack_masks",
       "the model itself keeps masks of its ReLUs as bits or as bytes",
       fmt::format("set memory.pack_masks to false, {}", follows)},
      {train.fp8 != Fp8::off, false, "train.fp8",
       "layers of braid multiply in fp8; those of the model are its own",
       fmt::format("set train.fp8 to off, {}", follows)},
      {train.stream.has_value(), false, "train.stream",
       "the dtype that blocks add to is chosen inside of the model",
       fmt::format("leave train.stream out, {}", follows)},
      {true, casts(policy),
       fmt::format("train.param = {} with train.compute = {}", dtype_name(policy.param),
                   dtype_name(policy.compute)),
       "torch's autocast computes in bf16 or fp16; else a model computes in its own dtype",
       fmt::format("make both the same, {}", follows)},
  };
}

// For a model that says how it was built.
std::vector<Demand> demands_on_build(const nn::Build& made, const RunOptions& options,
                                     c10::Device device) {
  const Precision wanted = policy_of(options.train);
  const Precision& has = made.precision;
  const bool same = has.param == wanted.param && has.compute == wanted.compute &&
                    has.stream == wanted.stream && has.fp8 == wanted.fp8;
  return {{true, same,
           fmt::format("train.precision = {} with a model that was built for {}", wanted.name,
                       has.name),
           "the dtypes of a model's layers are chosen when it is made",
           fmt::format("make it with {{.precision = precision(\"{}\")}}, or set train.precision to "
                       "\"{}\"",
                       wanted.name, has.name)},
          {options.memory.pack_masks, made.pack_masks, "memory.pack_masks",
           "how masks are kept is chosen when the model is made",
           "make it with {.pack_masks = true} in nn::Build"},
          {options.memory.recompute == Again::budget, false, "memory.recompute = budget",
           "what to compute again is found by dry runs, which train::open_session makes",
           "start with train::open_session, or set memory.recompute to blocks, matmuls or none"},
          {true, made.device.type() == device.type(),
           fmt::format("train.device: {} with a model on {}", device.str(), made.device.str()),
           "constants of its layers lie where it was made",
           fmt::format("make it with {{.device = c10::Device(\"{}\")}}", device.str())}};
}

void expect_met(const std::vector<Demand>& demands, const std::string& model) {
  for (const Demand& demand : demands)
    if (demand.asked && !demand.met)
      throw ConfigError(
          {.what = fmt::format("{} with {}, a model of the program's own", demand.option, model),
           .why = demand.why,
           .fix = demand.fix});
}

}  // namespace

RunOptions options_of(const nn::Model& model, RunOptions options) {
  if (is_described(model, options)) return options;
  options.model.own.of = model.name();
  options.model.name = ModelName::own;
  return options;
}

OwnModel::OwnModel(nn::Model& given, RunOptions options, c10::Device device, const Ranks& ranks)
    : given_(given), options_(options_of(given, std::move(options))) {
  const bool own = options_.model.name == ModelName::own;
  if (const nn::Build* made = given.build()) {
    if (own) expect_met(demands_on_build(*made, options_, device), given.name());
    return;
  }
  expect_met(demands_of(given, options_, ranks), given.name());
  around_ = cast_model(given, policy_of(options_.train), device);
}

bool has_experts(const nn::Model& model) {
  const std::vector<nn::LayerRow> rows = model.layers();
  return std::any_of(rows.begin(), rows.end(),
                     [](const nn::LayerRow& row) { return row.kind.starts_with("Router over "); });
}

void expect_segments(const nn::Model& model, const RunOptions& options, int64_t segments) {
  if (options.memory.recompute == Again::none || segments > 0 || model.build() != nullptr) return;
  throw ConfigError(
      {.what = fmt::format("memory.recompute with {}, a model of the program's own: its first step "
                           "computed nothing again",
                           model.name()),
       .why = "its forward pass runs no block (or attention) through Pass::segments",
       .fix = "run its blocks with nn::run_blocks(pass, ...), or set memory.recompute to none"});
}

}  // namespace braid::train
