// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/session.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "braid/core/accelerator.h"
#include "braid/core/cpu.h"
#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/core/units.h"
#include "braid/launch/environment.h"
#include "braid/train/job.h"
#include "braid/train/layout.h"
#include "braid/train/out_of_memory.h"
#include "train/own_model.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

void refuse_used_folder(const fs::path& dir) {
  const fs::path saved = dir / "checkpoints";
  if (!fs::is_directory(saved) || fs::is_empty(saved)) return;
  throw ConfigError(
      {.what = fmt::format("{} already holds checkpoints of a run", dir.string()),
       .why = "a new run would mix with it",
       .fix = fmt::format("continue it with --resume, choose --set run.name=<other>, or rm -r {}",
                          dir.string())});
}

bool holds_run(const fs::path& dir) {
  return fs::exists(dir / "log.jsonl") || fs::exists(dir / "checkpoints");
}

ConfigError shape_mismatch(const char* key, int64_t model, int64_t data) {
  return ConfigError({.what = fmt::format("{} = {}, but the data have {}", key, model, data),
                      .why = "model and data must agree",
                      .fix = fmt::format("--set {}={}", key, data)});
}

void expect_field(const char* name, const std::vector<int64_t>& shape) {
  if (shape.size() == 3) return;
  throw ConfigError(
      {.what = fmt::format("{} of shape [{}] for a ViT", name, fmt::join(shape, ", ")),
       .why = "it takes fields of [channels, rows, columns]",
       .fix = "use data.kind: frames, or synthetic with three sizes"});
}

void check_fields(const nn::VitOptions& model, const data::SampleSpec& spec) {
  const auto& input = spec.input.shape;
  const auto& target = spec.target.shape;
  expect_field("samples", input);
  expect_field("targets", target);
  if (input[0] != model.channels_in)
    throw shape_mismatch("model.channels_in", model.channels_in, input[0]);
  if (target[0] != model.channels_out)
    throw shape_mismatch("model.channels_out", model.channels_out, target[0]);
  if (input[1] != model.image[0] || input[2] != model.image[1])
    throw ConfigError({.what = fmt::format("model.image = [{}], but the data are {} x {}",
                                           fmt::join(model.image, ", "), input[1], input[2]),
                       .why = "model and data must agree",
                       .fix = fmt::format("--set model.image=[{},{}], or crop with data.size",
                                          input[1], input[2])});
}

void check_pictures(const nn::SwinirOptions& model, const data::SampleSpec& spec) {
  const auto& input = spec.input.shape;
  const auto& target = spec.target.shape;
  if (input.size() != 3 || input[0] != model.channels)
    throw shape_mismatch("model.channels", model.channels, input.empty() ? 0 : input[0]);
  if (target.size() == 3 && target[1] != model.scale * input[1])
    throw shape_mismatch("model.scale", model.scale, target[1] / input[1]);
}

void check_tokens(int64_t sequence, const data::SampleSpec& spec) {
  if (spec.input.dtype != at::kLong)
    throw ConfigError({.what = "the data are not tokens",
                       .why = "a language model takes int64 tokens",
                       .fix = "use data.kind: tokens or text"});
  if (spec.tokens > sequence)
    throw ConfigError({.what = fmt::format("data.sequence = {} is longer than model.sequence = {}",
                                           spec.tokens, sequence),
                       .why = "the model has no positions for it",
                       .fix = fmt::format("--set data.sequence={}", sequence)});
}

void keep_config(const RunOptions& options, const SessionOptions& given) {
  const fs::path dir = run_dir(options);
  if (!given.ranks.first() || (given.profile && holds_run(dir))) return;
  write_atomic(dir / "config.yaml", resolved_yaml(options));
}

void open_folder(const RunOptions& options, const SessionOptions& given) {
  settle_math();
  check(options);
  if (options.memory.keep_freed && device_of(options.train, given.ranks.gpu).is_cpu())
    keep_freed_memory();
  if (given.ranks.alone()) {
    parallel::resolve(options.mesh, 1, static_cast<int>(options.train.zero));  // refuses many ranks
    if (options.train.threads > 0) at::set_num_threads(static_cast<int>(options.train.threads));
  }
  const fs::path dir = run_dir(options);
  if (!given.resume && !given.profile) refuse_used_folder(dir);
  given.ranks.control.barrier().wait();  // nobody writes before all have looked
  if (given.ranks.first()) make_dirs(dir);
  if (!given.resume) keep_config(options, given);
}

Session session_of(nn::Model& model, Splits data, RunOptions options, const SessionOptions& given) {
  options.run.spec = given.config_spec;
  const std::string dir = run_dir(options);
  Session session;
  const bool first = given.ranks.first() && !(given.profile && holds_run(dir));
  session.log = std::make_unique<Log>(LogOptions{.rank = static_cast<int>(given.ranks.mesh.rank()),
                                                 .file = first ? dir + "/out.log" : "",
                                                 .quiet = given.quiet});
  session.sinks = std::make_unique<report::Sinks>(
      first ? report::open_sinks(options.report, dir, *session.log, given.terminal)
            : report::Sinks());
  session.trainer = std::make_unique<Trainer>(model, std::move(data), options, *session.sinks,
                                              *session.log, given.ranks);
  if (given.resume) {
    session.trainer->resume();  // may refuse the config: the folder keeps its own until then
    keep_config(options, given);
  }
  return session;
}

}  // namespace

void check_shapes(const RunOptions& options, const data::SampleSpec& spec) {
  switch (options.model.name) {
    case nn::ModelName::vit:
      return check_fields(options.model.vit, spec);
    case nn::ModelName::gpt:
      return check_tokens(options.model.gpt.sequence, spec);
    case nn::ModelName::llama:
      return check_tokens(options.model.llama.sequence, spec);
    case nn::ModelName::swinir:
      return check_pictures(options.model.swinir, spec);
    case nn::ModelName::mlp:
      if (spec.input.shape.size() != 1 || spec.input.shape[0] != options.model.mlp.inputs)
        throw shape_mismatch("model.inputs", options.model.mlp.inputs,
                             spec.input.shape.empty() ? 0 : spec.input.shape[0]);
      return;
    case nn::ModelName::own:
      return;
  }
}

namespace {

std::shared_ptr<const data::Source> open_split(const RunOptions& options, data::Split split) {
  return data::open_source(options.data, split, static_cast<uint64_t>(options.seed));
}

// Now, not after the first epoch. The model fits the training data, so other data are what is
// wrong.
std::shared_ptr<const data::Source> open_beside(const RunOptions& options, data::Split split,
                                                const char* key) {
  if (!data::has_split(options.data, split)) return nullptr;
  auto source = open_split(options, split);
  try {
    check_shapes(options, source->spec());
  } catch (const ConfigError& error) {
    throw DataError({.what = fmt::format("{}: {}", key, error.complaint().what),
                     .why = "the model fits the training data, and these have another shape",
                     .fix = fmt::format("give {} data of the same shape", key)});
  }
  return source;
}

}  // namespace

Splits open_splits(const RunOptions& options) {
  Splits splits;
  splits.train = open_split(options, data::Split::train);
  check_shapes(options, splits.train->spec());
  splits.valid = open_beside(options, data::Split::valid, "data.valid");
  splits.test = open_beside(options, data::Split::test, "data.test");
  return splits;
}

namespace {

std::unique_ptr<nn::Model> model_of(const RunOptions& options, const Ranks& ranks, bool dry) {
  return nn::make_model(options.model, {.seed = static_cast<uint64_t>(options.seed),
                                        .precision = policy_of(options.train),
                                        .device = device_of(options.train, ranks.gpu),
                                        .dry_params = dry,
                                        .layout = layout_of(options, ranks),
                                        .pack_masks = options.memory.pack_masks});
}

// Weights that lie on the host are made there, piece by piece.
std::unique_ptr<nn::Model> trained_model(const RunOptions& options, const Ranks& ranks) {
  return options.memory.offloads("parameters") ? model_of(options, ranks, /*dry=*/true)
                                               : build_model(options, ranks);
}

}  // namespace

std::unique_ptr<nn::Model> build_model(const RunOptions& options, const Ranks& ranks) {
  return model_of(options, ranks,
                  options.train.zero == 3 && ranks.mesh.size(parallel::Axis::shard) > 1);
}

void check_weights(const nn::Model& model, const State& weights, const WeightsOrigin& origin,
                   const std::set<std::string>& elsewhere) {
  std::set<std::string> left;
  for (const auto& [name, tensor] : weights.tensors)
    if (!elsewhere.contains(name)) left.insert(name);
  std::vector<Param> wanted = model.params();
  for (const Param& buffer : model.buffers()) wanted.push_back(buffer);
  for (const Param& param : wanted) {
    if (left.erase(param.name) == 0)
      throw StorageError(
          {.what = fmt::format("{} has no tensor {}", origin.name, param.name),
           .why = "each parameter and buffer of the model takes its values from there",
           .fix = origin.fix});
    const at::Tensor& tensor = weights.tensor(param.name);
    const at::IntArrayRef whole =
        param.is_whole() ? param.tensor.sizes() : at::IntArrayRef(param.piece.whole);
    if (tensor.sizes() != whole)
      throw StorageError(
          {.what = fmt::format("{} of {} has shape {}, the model's {}", param.name, origin.name,
                               fmt::join(tensor.sizes(), "x"), fmt::join(whole, "x")),
           .why = "these weights are of a model with other sizes",
           .fix = origin.fix});
  }
  if (left.empty()) return;
  const std::vector<std::string> first(left.begin(),
                                       std::next(left.begin(), std::min<size_t>(left.size(), 3)));
  throw StorageError(
      {.what = fmt::format("{} has {} that the model lacks: {}{}", origin.name,
                           left.size() == 1 ? "a tensor" : fmt::format("{} tensors", left.size()),
                           fmt::join(first, ", "), left.size() > 3 ? ", ..." : ""),
       .why = "a model that leaves weights out computes something else",
       .fix = origin.fix});
}

void copy_weights(nn::Model& model, const State& weights, const WeightsOrigin& origin) {
  check_weights(model, weights, origin);
  const at::NoGradGuard no_grad;
  for (const Param& param : model.params()) param.tensor.copy_(weights.tensor(param.name));
  for (const Param& buffer : model.buffers()) buffer.tensor.copy_(weights.tensor(buffer.name));
}

void check_ranks(const RunOptions& options, int64_t world, bool resume) {
  check_layout(options,
               parallel::Mesh(options.mesh, world, 0, static_cast<int>(options.train.zero)));
  if (!resume) refuse_used_folder(run_dir(options));
}

Session open_session(const RunOptions& asked, SessionOptions given) {
  Splits splits = open_splits(asked);  // before the folder is made: wrong data leave nothing behind
  if (given.profile) splits.valid = splits.test = nullptr;
  forget_memory_reports(asked, given.ranks);
  const Fitted fitted = fit_to_memory(asked, given.ranks);
  const RunOptions& options = fitted.options;
  open_folder(options, given);
  given.ranks.ledger = limited_memory(options, device_of(options.train, given.ranks.gpu));
  return reporting_memory(
      {.options = options, .ranks = given.ranks, .during = [] { return "building the model"; }},
      [&] {
        std::unique_ptr<nn::Model> model = trained_model(options, given.ranks);
        Session session = session_of(*model, std::move(splits), options, given);
        for (const std::string& line : fitted.lines) session.log->info(line);
        session.model = std::move(model);
        return session;
      });
}

namespace {

EndRecord fit_here(nn::Model& model, Splits data, const RunOptions& options,
                   const SessionOptions& given) {
  open_folder(options, given);
  return session_of(model, std::move(data), options, given).trainer->fit();
}

}  // namespace

EndRecord fit(nn::Model& model, Splits data, const RunOptions& asked, SessionOptions given) {
  const RunOptions options = options_of(model, asked);
  if (!given.ranks.alone() || given.alone) return fit_here(model, std::move(data), options, given);
  const launch::Environment here = launch::environment();
  if (here.world == 1) return fit_here(model, std::move(data), options, given);
  Job job(options, here);
  given.ranks = job.ranks();
  return job.watched([&] { return fit_here(model, std::move(data), options, given); });
}

}  // namespace braid::train
