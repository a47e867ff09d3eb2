// SPDX-License-Identifier: BSD-3-Clause
// Building a run, its evaluation, and what it tells of itself.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "braid/core/accelerator.h"
#include "braid/core/observe.h"
#include "braid/core/units.h"
#include "braid/memory/usage.h"
#include "braid/train/out_of_memory.h"
#include "braid/train/session.h"
#include "train/agreed.h"
#include "train/trainer_impl.h"

namespace braid::train {
namespace {

std::vector<float> host_floats(const at::Tensor& field) {
  const at::Tensor host = field.to(at::kCPU, at::kFloat).contiguous();
  return {host.data_ptr<float>(), host.data_ptr<float>() + host.numel()};
}

data::LoaderOptions training_loader(const RunOptions& options, c10::Device device, int64_t ranks) {
  return {.global_batch = global_batch_of(options.train, ranks),
          .shuffle = true,
          .workers = options.data.workers,
          .queue = options.data.queue,
          .seed = static_cast<uint64_t>(options.seed),
          .tail = options.train.last_batch == LastBatch::keep ? data::Tail::keep : data::Tail::drop,
          .device = device.is_cuda() ? device.index() : -1,
          .check_finite = options.data.check_finite};
}

// Of all ranks that a model is spread over; 0 for a model of one's own until a step was counted.
double whole_flops(const nn::Model& model, const RunOptions& options, const parallel::Mesh& mesh) {
  if (mesh.world() == mesh.batch_ranks()) return model.flops_forward();
  if (options.model.name == nn::ModelName::own) return 0;
  nn::Build build;
  build.dry_params = true;
  const auto whole = nn::make_model(options.model, build);
  return whole->blocks() == model.blocks() ? whole->flops_forward() : 0;
}

// Listens to what the watch is told of, for the report of a run that ends.
Ranks overheard(Ranks ranks, std::string& now, std::string& phase) {
  ranks.progress = [&now, &phase, tell = std::move(ranks.progress)](const std::string& what) {
    now = what;
    phase.clear();
    if (tell) tell(what);
  };
  ranks.phase = [&phase, tell = std::move(ranks.phase)](const char* what) {
    phase = what;
    if (tell) tell(what);
  };
  return ranks;
}

RunOptions with_known_sizes(RunOptions options) {
  if (options.train.micro_batch != 0) return options;
  throw ConfigError({.what = "train.micro_batch = auto with a model or a trainer of your own",
                     .why = "which size fits is found by dry runs of the config's model",
                     .fix = "call train::fit_to_memory, or say a number"});
}

data::Shard share_of(const parallel::Mesh& mesh) {
  return {.rank = mesh.batch_rank(), .size = mesh.batch_ranks()};
}

}  // namespace

Trainer::Impl::Impl(nn::Model& trained, Splits splits, RunOptions run, report::Sink& records,
                    Log& lines, Ranks together)
    : own(trained, with_known_sizes(run), device_of(run.train, together.gpu), together),
      model(own.model()),
      data(std::move(splits)),
      options(own.options()),
      sink(records),
      log(lines),
      ranks(overheard(std::move(together), now, phase)),
      device(device_of(options.train, ranks.gpu)),
      global_batch(global_batch_of(options.train, ranks.mesh.batch_ranks())),
      loader(data.train, training_loader(options, device, ranks.mesh.batch_ranks()),
             share_of(ranks.mesh)),
      parts(model, options, device, ranks),
      store(std::filesystem::path(run_dir(options)) / "checkpoints", options.checkpoint,
            ranks.control),
      recorder(sink, device.is_cuda() ? std::max<int64_t>(options.report.every, 1) : 1),
      flops_per_sample(3 * whole_flops(model, options, ranks.mesh)) {
  if (ranks.ledger == nullptr) ranks.ledger = limited_memory(options, device);
  profiler = std::make_unique<Profiler>(make_profiler());
  check_graph();
  watch_divergence();
  limit_steps();
}

Profiler Trainer::Impl::make_profiler() {
  return Profiler(options.profile, {.run_dir = run_dir(options),
                                    .control = ranks.control,
                                    .device = device,
                                    .pipelined = parts.staged != nullptr,
                                    .ledger = ranks.ledger.get(),
                                    .mark_alive = [this] { mark_alive(); },
                                    .say = [this](const std::string& line) { log.info(line); }});
}

void Trainer::Impl::mark_alive() const {
  for (const std::vector<Param>& params : {model.params(), parts.params})
    for (const Param& param : params) {
      mark(param.tensor, MemoryKind::parameter, module_of(param));
      mark(param.tensor.grad(), MemoryKind::gradient, module_of(param));
    }
  for (const auto& [name, tensor] : parts.optimizer.state().tensors)
    mark(tensor,
         name.ends_with("/master") ? MemoryKind::master_weight : MemoryKind::optimizer_state,
         name.substr(0, name.rfind('.')));
}

// Weights that no axis cuts are alike on the ranks of tensor, too; pieces of ZeRO may end elsewhere
// there.
void Trainer::Impl::watch_divergence() {
  if (!ranks.sums()) return;
  const bool whole = options.train.zero == 0;
  const parallel::ReplicasOf alike = [replicas = ranks.replicas_of(), whole](Param param) {
    param.tensor_partial = whole && param.piece.cuts.empty();
    return replicas(param);
  };
  divergence.emplace(parts.on_device(), alike, options.train.divergence);
}

// With a pipeline the ranks of the last stage know how the evaluation went.
ValidRecord Trainer::Impl::agreed_record(const ValidRecord& mine) const {
  if (parts.staged == nullptr) return mine;
  const auto lines = ranks.mesh.all_groups({parallel::Axis::pipeline});
  return broadcast_record(ranks.control, mine,
                          lines.front()[static_cast<size_t>(parts.staged->output_rank())]);
}

// Of the whole model: ranks of tensor, expert and pipeline have different ones.
int64_t Trainer::Impl::parameters() const {
  if (ranks.alone()) return model.parameters();
  int64_t own = 0;
  for (const Param& param : model.params())
    if (!param.repeated) own += param.tensor.numel();
  const at::Tensor count = at::full({}, own, c10::kLong);
  ranks.control.all_reduce(count).wait();
  using parallel::Axis;
  return count.item<int64_t>() / (ranks.mesh.size(Axis::data) * ranks.mesh.size(Axis::shard) *
                                  ranks.mesh.size(Axis::context));
}

// Of the first epoch. A resumed run may have made its steps with other batches; the data say how
// far in the epochs it is.
int64_t Trainer::Impl::first_step() const { return step - loader.given(); }

int64_t Trainer::Impl::step_after(int64_t epochs) const {
  return std::max(step, first_step() + epochs * loader.steps_per_epoch());
}

void Trainer::Impl::limit_steps() {
  const int64_t per_epoch = loader.steps_per_epoch();  // 1 or more: the loader refuses 0
  const TrainOptions& train = options.train;
  const int64_t by_epochs = train.epochs > 0 ? step_after(train.epochs) : 0;
  total_steps = train.steps > 0 && by_epochs > 0 ? std::min(train.steps, by_epochs)
                                                 : std::max(train.steps, by_epochs);
  if (train.whole_epochs && train.steps > 0) {
    total_steps = step_after((total_steps - first_step()) / per_epoch);
    if (total_steps == 0)
      throw ConfigError(
          {.what = fmt::format("train.steps = {} is less than one epoch of {} steps", train.steps,
                               per_epoch),
           .why = "train.whole_epochs rounds down to whole epochs, so nothing would be trained",
           .fix = fmt::format("--set train.steps={}, or train.whole_epochs=false", per_epoch)});
  }
  schedule = {
      .lr = optim::scaled_lr(options.optimizer.schedule, options.optimizer.rule.lr, global_batch),
      .total_steps = train.steps > 0 ? train.steps : total_steps,
      .steps_per_epoch = per_epoch,
      .first_step = first_step()};
  optim::lr_at(options.optimizer.schedule, schedule, 0);  // refuses a schedule without an end
}

ValidRecord Trainer::Impl::evaluate(data::Split split) {
  const auto& source = split == data::Split::test    ? data.test
                       : split == data::Split::valid ? data.valid
                                                     : data.train;
  if (source == nullptr)
    throw ConfigError({.what = "there are no data to evaluate",
                       .why = "the config names none for this split",
                       .fix = "--set data.valid=<folder> or data.test=<folder>"});
  data::Loader loading(source, evaluation_loader(options, device, ranks.mesh.batch_ranks()),
                       share_of(ranks.mesh));
  parts.swap_averages();
  try {
    ValidRecord record;
    parts.beside([&] {
      record = train::evaluate(
          model, loading, options.train.loss,
          {.ranks = ranks.batch(),
           .forward = [&](const at::Tensor& input) { return parts.forward(model, input, {}); },
           .tick = [&] { progress("evaluation after step"); }});
    });
    parts.swap_averages();
    return agreed_record(record);
  } catch (...) {
    if (ranks.alone()) parts.swap_averages();  // others may not be there for it
    throw;
  }
}

// Before the first step, not after the first epoch: one sample tells which metrics there are.
void Trainer::Impl::check_metric_names() {
  if (data.valid == nullptr && options.valid.patience > 0)
    throw ConfigError({.what = fmt::format("valid.patience = {}, but there are no validation data",
                                           options.valid.patience),
                       .why = "early stop watches a metric of the validation",
                       .fix = "--set data.valid=<folder>, or valid.patience=0"});
  const std::string& watched = options.valid.metric;
  const std::string& rated = options.checkpoint.metric;
  if (data.valid == nullptr || (watched == "loss" && rated == "loss")) return;
  data::LoaderOptions one = evaluation_loader(options, device);
  one.global_batch = 1;
  one.workers = 0;
  data::Loader first(data.valid, one);
  std::vector<std::string> known = {"loss"};
  if (const auto batch = first.next()) {
    Evaluation one(options.train.loss,
                   [&](const at::Tensor& input) { return parts.forward(model, input, {}); });
    one.add(model, *batch);
    for (const auto& [name, value] : agreed_record(one.record()).metrics) known.push_back(name);
  }
  const auto expect = [&](const char* key, const std::string& name) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw unknown_metric(key, name, known);
  };
  expect("valid.metric", watched);
  expect("checkpoint.metric", rated);
}

ConfigError Trainer::Impl::unknown_metric(const std::string& key, const std::string& name,
                                          const std::vector<std::string>& known) const {
  const std::string guess = nearest(name, known);
  return ConfigError({.what = fmt::format("{} = {} is not a metric of this run", key, name),
                      .why = fmt::format("validation gives {}", fmt::join(known, ", ")),
                      .fix = fmt::format("--set {}={}", key, guess.empty() ? "loss" : guess)});
}

// All of it, on all ranks: the first one draws.
at::Tensor Trainer::Impl::picture_output() {
  const at::NoGradGuard no_grad;
  at::Tensor output = parts.forward(model, picture_batch->input.narrow(0, 0, 1), {});
  if (output.defined()) output = model.whole_output(output).to(c10::kFloat).contiguous();
  if (parts.staged == nullptr) return output;
  if (!output.defined())
    output = at::empty(picture_batch->target.narrow(0, 0, 1).sizes(),
                       picture_batch->target.options().dtype(c10::kFloat));
  parts.staged->axis().broadcast(output, parts.staged->output_rank()).wait();
  return output;
}

RunInfo Trainer::Impl::run_info() const {
  RunInfo info;
  info.name = options.run.name;
  info.dir = run_dir(options);
  info.model = model.name();
  info.config = resolved_yaml(options);
  info.config_spec = options.run.spec;
  info.device = device.is_cuda() ? accelerator()->name(device.index()) : "cpu";
  info.parameters = parameters();
  info.samples_per_epoch = data.train->size();
  info.steps_per_epoch = loader.steps_per_epoch();
  info.total_steps = total_steps;
  info.first_step = step;
  info.global_batch = global_batch;
  info.tokens_per_sample = data.train->spec().tokens;
  info.flops_per_sample = flops_per_sample;
  info.peak_flops =
      known_peak_flops(info.device, parts.policy) * static_cast<double>(ranks.mesh.world());
  info.ranks = ranks.mesh.world();
  info.mesh = parallel::to_text(ranks.mesh);
  info.latency = ranks.latency;
  return info;
}

int64_t Trainer::Impl::memory_in_use() const {
  return device.is_cuda() ? accelerator()->peak_allocated(device.index()) : memory::peak_rss();
}

void Trainer::Impl::draw_picture() {
  const bool fields = options.report.pictures && picture_batch &&
                      picture_batch->target.dim() == 4 &&
                      options.train.loss == nn::Loss::relative_l2;
  if (!fields) return;
  const at::Tensor output = picture_output();
  const int64_t channel = output.size(1) > 2 ? 2 : 0;
  PictureRecord picture{.tag = "Visualization, " + channel_name(channel), .step = step};
  picture.rows = output.size(2);
  picture.columns = output.size(3);
  picture.panels = {{"ERA5 target", host_floats(picture_batch->target[0][channel])},
                    {"ViT prediction", host_floats(output[0][channel])}};
  sink.picture(picture);
}

}  // namespace braid::train
