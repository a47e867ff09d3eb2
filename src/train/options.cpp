// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/options.h"

#include <fmt/format.h>

#include "braid/core/error.h"

namespace braid::train {
namespace {

// Samples of a run are counted in 64 bits, those of a step several times more (tokens, bytes).
constexpr double most_batch = 1e9, most_steps = 1e15, most_epochs = 1e9;
constexpr double most_threads = 4096;  // more than the cores of any machine

c10::ScalarType dtype_called(const std::string& name) {
  for (const auto type : {c10::kDouble, c10::kFloat, c10::kBFloat16, c10::kHalf})
    if (dtype_name(type) == name) return type;
  throw InternalError(
      {.what = "dtype " + name + " passed the check of its words", .why = "", .fix = ""});
}

void describe_dtypes(Fields& fields, TrainOptions& options) {
  const Rule words{.one_of = {"fp64", "fp32", "bf16", "fp16"}, .none = "policy"};
  fields.field("param", options.param, "dtype of the parameters, over that of the policy", words);
  fields.field("compute", options.compute, "dtype of matmuls, convolutions and attention", words);
  fields.field(
      "stream", options.stream,
      "dtype of the residual stream, which blocks add to; bf16 under precision bf16 halves "
      "its bytes and rounds each sum",
      words);
  fields.field("reduce", options.reduce, "dtype of gradients on the wire", words);
  fields.field("master", options.master, "dtype that the optimizer updates", words);
  fields.choice("fp8", options.fp8, {"off", "tensor", "row"},
                "linear layers of blocks as products of 8-bit floats: with one scale a tensor, or "
                "one a row and gradients of weights in bf16");
}

// Where layers are not the plain ones that have products in fp8.
void check_fp8(const RunOptions& options) {
  const parallel::ParallelOptions& how = options.parallel;
  if (options.train.fp8 == Fp8::off) return;
  const auto refuse = [](const std::string& beside, const std::string& fix) {
    throw ConfigError({.what = "train.fp8 beside " + beside,
                       .why = "there the products of linear layers are cut up, and are in bf16",
                       .fix = fix + " or train.fp8=off"});
  };
  if (how.overlap > 1)
    refuse(fmt::format("parallel.overlap = {}", how.overlap), "set parallel.overlap=1");
  if (how.regather) refuse("parallel.regather", "set parallel.regather=false");
  const bool splits = how.schedule == parallel::ScheduleKind::zb_h1 ||
                      how.schedule == parallel::ScheduleKind::zb_h2 ||
                      how.schedule == parallel::ScheduleKind::zb_v || !how.schedule_file.empty();
  if (splits && options.mesh.pipeline > 1)
    refuse("a schedule that splits the backward pass", "set parallel.schedule=1f1b");
}

void check_stream(const RunOptions& options) {
  if (!options.train.stream || options.model.name != nn::ModelName::mlp) return;
  throw ConfigError({.what = fmt::format("train.stream = {} for an mlp", *options.train.stream),
                     .why = "its layers follow each other; none adds to what it was given",
                     .fix = "remove train.stream (--set train.stream=policy)"});
}

void check_batch(const RunOptions& options) {
  const TrainOptions& train = options.train;
  if (train.global_batch && train.local_batch)
    throw ConfigError(
        {.what = fmt::format("train.global_batch = {} and train.local_batch = {} are both given",
                             *train.global_batch, *train.local_batch),
         .why = "each determines the other once the ranks are known",
         .fix = "remove one of them (--set train.local_batch=null)"});
  if (train.steps == 0 && train.epochs == 0 && !train.time)
    throw ConfigError(
        {.what = "the run has no end: train.steps, train.epochs and train.time are all unset",
         .why = "a run stops by steps, epochs or time",
         .fix = "--set train.epochs=10"});
}

void check_offload(const RunOptions& options) {
  const memory::MemoryOptions& memory = options.memory;
  if (memory.delay > 0 && !memory.offloads("optimizer"))
    throw ConfigError(
        {.what = fmt::format("memory.delay = {} without the optimizer on the host", memory.delay),
         .why = "only an update on the host can run beside the next step of the device",
         .fix = "--set memory.offload=[optimizer], or memory.delay=0"});
  if (memory.offloads("parameters") && options.train.zero != 3)
    throw ConfigError({.what = fmt::format("memory.offload has parameters, and train.zero = {}",
                                           options.train.zero),
                       .why = "weights on the host are gathered block by block, as zero 3 does, "
                              "also on one rank",
                       .fix = "--set train.zero=3, or take parameters out of memory.offload"});
}

// Of a model whose blocks stand in a list.
void check_blocks(const nn::ModelOptions& model) {
  constexpr int64_t most = 10'000;
  const bool swinir = model.name == nn::ModelName::swinir;
  if (!swinir && model.name != nn::ModelName::mlp) return;
  int64_t blocks = 0;
  if (swinir)
    for (const int64_t depth : model.swinir.depths) blocks += depth;
  else
    blocks = static_cast<int64_t>(model.mlp.hidden.size());
  if (blocks <= most) return;
  throw ConfigError(
      {.what = fmt::format("{} has {} {}", swinir ? "model.depths" : "model.hidden", blocks,
                           swinir ? "blocks" : "layers"),
       .why = fmt::format("each of them is built, also in a dry run; at most {} are", most),
       .fix = "take fewer"});
}

void list_models(std::vector<OptionRow>& rows) {
  for (const auto name : {nn::ModelName::mlp, nn::ModelName::vit, nn::ModelName::swinir,
                          nn::ModelName::gpt, nn::ModelName::llama}) {
    ListFields fields;
    nn::ModelOptions model;
    model.name = name;
    describe(fields, model);
    for (OptionRow& row : fields.rows) {
      const bool is_name = row.path == "name";
      if (is_name && name != nn::ModelName::mlp) continue;
      row.path = is_name ? "model.name"
                         : fmt::format("model.{} ({})", row.path, fields.rows.front().value);
      rows.push_back(row);
    }
  }
}

}  // namespace

void describe(Fields& fields, TrainOptions& options) {
  fields.field("steps", options.steps,
               "optimizer steps, also the length of the schedule; 0: by epochs or time",
               {.at_least = 0, .at_most = most_steps});
  fields.field("epochs", options.epochs, "passes over the training data; 0: by steps or time",
               {.at_least = 0, .at_most = most_epochs});
  fields.field("time", options.time, "stop and save after this long, e.g. 23h30m", {.above = 0});
  fields.field("global_batch", options.global_batch, "samples an update, over all ranks",
               {.at_least = 1, .at_most = most_batch});
  fields.field("local_batch", options.local_batch,
               "samples an update and rank; instead of global_batch",
               {.at_least = 1, .at_most = most_batch});
  fields.field("micro_batch", options.micro_batch,
               "samples a forward pass; the rest is accumulated; all: the whole batch of a rank at "
               "once; auto: the most that fit into memory",
               {.at_least = 1, .at_most = most_batch, .none = "all", .zero = "auto"});
  fields.choice("last_batch", options.last_batch, {"drop", "keep"},
                "the incomplete batch at the end of an epoch");
  fields.field("precision", options.precision,
               "which dtype each kind of number has; bf16_params rounds updates and sums of "
               "gradients to 8 bits, bf16_masters keeps both in fp32",
               {.one_of = precision_names()});
  describe_dtypes(fields, options);
  fields.choice("loss", options.loss, {"relative_l2", "l1", "mse", "cross_entropy"},
                "what is minimised");
  fields.choice("area", options.area, {"auto", "cells", "cos", "reference"},
                "how metrics of forecasts weight the rows of a grid: areas of the grid cells (as "
                "WeatherBench 2), cosine of the latitude, or as the NERSC course, which assumes "
                "rows from 90 to -90; auto: cells where the files give latitudes");
  fields.field("clip", options.clip, "largest global L2 norm of the gradients; 0: no clipping",
               {.at_least = 0});
  fields.field("ema", options.ema, "decay of the averaged weights that are validated; 0: none",
               {.at_least = 0, .at_most = 1});
  fields.field("zero", options.zero,
               "ZeRO: what the ranks of mesh.shard hold in pieces; 1: optimizer states, 2: and "
               "gradients, 3: and parameters; 0: nothing",
               {.at_least = 0, .at_most = 3});
  fields.field("keep_gathered", options.keep_gathered,
               "zero 3: keep the weights of a block from forward to backward: a third less traffic "
               "for the memory of all weights");
  fields.section("divergence", options.divergence, "whether replicas still hold the same weights");
  fields.field("whole_epochs", options.whole_epochs, "round steps down to whole epochs");
  fields.field("initial_validation", options.initial_validation, "validate before the first step");
  fields.field("look_for_nan", options.look_for_nan,
               "check each step and name the first bad parameter or activation");
  fields.field(
      "tune", options.tune,
      "CUDA: time the algorithms of 16-bit matrix products at the first use of a shape and "
      "keep the fastest; off: torch's choice, the same in every run");
  fields.field("deterministic", options.deterministic,
               "CUDA: the same bits in every run; slower, and refused where a kernel cannot");
  fields.choice("graph", options.graph, {"auto", "on", "off"},
                "replay the step as a CUDA graph: auto, where nothing forbids it");
  fields.field("device", options.device, "where to train", {.one_of = {"auto", "cpu", "cuda"}});
  fields.field("threads", options.threads, "CPU threads of the math; 0: all cores",
               {.at_least = 0, .at_most = most_threads});
}

void describe(Fields& fields, ValidOptions& options) {
  fields.field("every", options.every, "steps between validations; 0: each epoch", {.at_least = 0});
  fields.field("patience", options.patience,
               "validations without improvement before the run stops; 0: never", {.at_least = 0});
  fields.field("min_delta", options.min_delta, "what counts as an improvement", {.at_least = 0});
  fields.field("metric", options.metric, "what patience watches: loss or a metric of the model");
  fields.field("highest", options.highest, "the metric is better when higher");
  fields.field("batch", options.batch, "samples a forward pass; none: as in training",
               {.at_least = 1, .at_most = most_batch});
  fields.field("psnr_range", options.psnr_range,
               "data range of PSNR: a number, span (max - min of each target) or max (the maximum "
               "of each target, as in the NREL tutorial)",
               {.above = 0, .none = "span", .zero = "max"});
  fields.field("test_at_end", options.test_at_end,
               "evaluate the test data after training, if there are any");
}

void describe(Fields& fields, PlaceOptions& options) {
  fields.field("name", options.name, "name of the run");
  fields.field("dir", options.dir, "folder of the run; empty: runs/<name>");
}

void describe(Fields& fields, ProfileOptions& options) {
  fields.field("on", options.on, "profile the first steps of the run");
  fields.field("wait", options.wait, "steps before the profile", {.at_least = 0});
  fields.field("warm_up", options.warm_up, "steps between wait and the profile", {.at_least = 0});
  fields.field("steps", options.steps, "steps in the trace", {.at_least = 1});
  fields.field("repeat", options.repeat, "profile again and again: wait, warm up, steps, ...");
  fields.field("dir", options.dir, "folder of the files; empty: profile/ in the run's folder");
}

void describe(Fields& fields, OptimizerSection& options) {
  describe(fields, options.rule);
  describe(fields, options.schedule);
  fields.section("scaler", options.scaler, "dynamic loss scaling of fp16");
}

void describe(Fields& fields, RunOptions& options) {
  fields.field("seed", options.seed, "of weights, data order and dropout", {.at_least = 0});
  fields.section("run", options.run, "where results go");
  fields.section("model", options.model, "what is trained");
  fields.section("data", options.data, "what it is trained on");
  fields.section("train", options.train, "how long, how large, how exact");
  fields.section("optimizer", options.optimizer, "the update and its learning rate");
  fields.section("valid", options.valid, "validation and early stop");
  fields.section("checkpoint", options.checkpoint, "what is saved and kept");
  fields.section("report", options.report, "what is shown and logged");
  fields.section("mesh", options.mesh, "sizes of the axes of parallelism");
  fields.section("parallel", options.parallel, "how the axes of the mesh do their work");
  fields.section("memory", options.memory, "what is kept, computed again or laid on the host");
  fields.section("profile", options.profile, "where time and memory of a few steps go");
  fields.section("launch", options.launch, "how ranks find each other and how long they wait");
}

RunOptions load_run(const std::string& spec, const std::vector<std::string>& sets) {
  auto options = read_options<RunOptions>(Config::load(spec, sets));
  check(options);
  return options;
}

void check(const RunOptions& options) {
  check_batch(options);
  check_offload(options);
  braid::check(policy_of(options.train));
  check_fp8(options);
  check_stream(options);
  check_blocks(options.model);
}

std::string resolved_yaml(const RunOptions& options) {
  RunOptions copy = options;
  WriteFields fields;
  describe(fields, copy);
  return fields.config.to_yaml();
}

std::vector<OptionRow> all_options() {
  RunOptions options;
  ListFields fields;
  describe(fields, options);
  std::vector<OptionRow> rows;
  bool models_listed = false;
  for (const OptionRow& row : fields.rows) {
    if (!row.path.starts_with("model.")) {
      rows.push_back(row);
    } else if (!std::exchange(models_listed, true)) {
      list_models(rows);
    }
  }
  return rows;
}

Precision policy_of(const TrainOptions& options) {
  Precision policy = precision(options.precision);
  const auto take = [](const std::optional<std::string>& name, c10::ScalarType& type) {
    if (name) type = dtype_called(*name);
  };
  take(options.param, policy.param);
  take(options.compute, policy.compute);
  if (options.param || options.compute)
    policy.stream = c10::promoteTypes(policy.param, policy.compute);
  take(options.stream, policy.stream);
  take(options.reduce, policy.reduce);
  if (options.param && !options.master &&
      c10::elementSize(policy.master) < c10::elementSize(policy.param))
    policy.master = policy.param;
  take(options.master, policy.master);
  policy.fp8 = options.fp8;
  return policy;
}

int64_t global_batch_of(const TrainOptions& options, int64_t ranks) {
  if (options.local_batch) return *options.local_batch * ranks;
  return options.global_batch.value_or(1);
}

std::string run_dir(const RunOptions& options) {
  return options.run.dir.empty() ? "runs/" + options.run.name : options.run.dir;
}

}  // namespace braid::train
