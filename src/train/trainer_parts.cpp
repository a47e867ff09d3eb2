// SPDX-License-Identifier: BSD-3-Clause
// Building a run, its checkpoints, and what it tells of itself.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "braid/core/accelerator.h"
#include "braid/core/units.h"
#include "braid/memory/usage.h"
#include "braid/train/session.h"
#include "train/trainer_impl.h"

namespace braid::train {
namespace {

std::vector<float> host_floats(const at::Tensor& field) {
  const at::Tensor host = field.to(at::kCPU, at::kFloat).contiguous();
  return {host.data_ptr<float>(), host.data_ptr<float>() + host.numel()};
}

data::LoaderOptions training_loader(const RunOptions& options, c10::Device device) {
  return {.global_batch = global_batch_of(options.train, /*ranks=*/1),
          .shuffle = true,
          .workers = options.data.workers,
          .queue = options.data.queue,
          .seed = static_cast<uint64_t>(options.seed),
          .tail = options.train.last_batch == LastBatch::keep ? data::Tail::keep : data::Tail::drop,
          .device = device.is_cuda() ? device.index() : -1,
          .check_finite = options.data.check_finite};
}

}  // namespace

Trainer::Impl::Impl(nn::Model& trained, Splits splits, RunOptions run, report::Sink& records,
                    Log& lines)
    : model(trained),
      data(std::move(splits)),
      options(std::move(run)),
      sink(records),
      log(lines),
      device(device_of(options.train)),
      global_batch(global_batch_of(options.train, /*ranks=*/1)),
      loader(data.train, training_loader(options, device)),
      parts(model, options, device),
      store(std::filesystem::path(run_dir(options)) / "checkpoints", options.checkpoint),
      recorder(sink, device.is_cuda() ? std::max<int64_t>(options.report.every, 1) : 1),
      flops_per_sample(3 * model.flops_forward()) {
  if (accelerator() != nullptr) accelerator()->allow_tf32(parts.policy.tf32);
  limit_steps();
}

void Trainer::Impl::limit_steps() {
  const int64_t per_epoch = loader.steps_per_epoch();  // 1 or more: the loader refuses 0
  const TrainOptions& train = options.train;
  const int64_t by_epochs = train.epochs * per_epoch;
  total_steps = train.steps > 0 && by_epochs > 0 ? std::min(train.steps, by_epochs)
                                                 : std::max(train.steps, by_epochs);
  if (train.whole_epochs && train.steps > 0) {
    total_steps = total_steps / per_epoch * per_epoch;
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
      .steps_per_epoch = per_epoch};
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
  data::Loader loading(source, evaluation_loader(options, device));
  if (parts.ema) parts.ema->swap();
  try {
    ValidRecord record = train::evaluate(model, loading, options.train.loss);
    if (parts.ema) parts.ema->swap();
    return record;
  } catch (...) {
    if (parts.ema) parts.ema->swap();
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
    const at::NoGradGuard no_grad;
    const at::Tensor output = model.forward(batch->input, {.training = false});
    for (const auto& [name, values] : sample_metrics(options.train.loss, output, *batch))
      known.push_back(name);
    if (is_perplexed(options.train.loss, *batch)) known.emplace_back("perplexity");
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

RunInfo Trainer::Impl::run_info() const {
  RunInfo info;
  info.name = options.run.name;
  info.dir = run_dir(options);
  info.model = model.name();
  info.config = resolved_yaml(options);
  info.config_spec = options.run.spec;
  info.device = device.is_cuda() ? accelerator()->name(device.index()) : "cpu";
  info.parameters = model.parameters();
  info.samples_per_epoch = data.train->size();
  info.steps_per_epoch = loader.steps_per_epoch();
  info.total_steps = total_steps;
  info.first_step = step;
  info.global_batch = global_batch;
  info.tokens_per_sample = data.train->spec().tokens;
  info.flops_per_sample = flops_per_sample;
  info.peak_flops = known_peak_flops(info.device, parts.policy);
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
  const at::NoGradGuard no_grad;
  const at::Tensor output =
      model.forward(picture_batch->input.narrow(0, 0, 1), {.training = false});
  const int64_t channel = output.size(1) > 2 ? 2 : 0;
  PictureRecord picture{.tag = "Visualization, " + channel_name(channel), .step = step};
  picture.rows = output.size(2);
  picture.columns = output.size(3);
  picture.panels = {{"ERA5 target", host_floats(picture_batch->target[0][channel])},
                    {"ViT prediction", host_floats(output[0][channel])}};
  sink.picture(picture);
}

State Trainer::Impl::state() {
  recorder.flush();
  State all;
  for (const Param& param : model.params())
    all.tensors["model/" + param.name] = param.tensor.detach();
  all.put("optimizer", parts.optimizer.state());
  all.put("loader", loader.state());
  if (parts.scaler) all.put("scaler", parts.scaler->state());
  if (parts.ema) all.put("ema", parts.ema->state());
  all.set("trainer/step", step);
  all.set("trainer/epoch", epoch);
  all.set("trainer/seed", options.seed);
  all.set("trainer/epoch_loss", recorder.loss_sum);
  all.set("trainer/epoch_steps", recorder.steps);
  all.set("trainer/epoch_samples", recorder.samples);
  all.set("trainer/epoch_seconds", epoch_seconds);
  all.set("trainer/best", best);
  all.set("trainer/validations_since_best", validations_since_best);
  return all;
}

void Trainer::Impl::load(const State& saved) {
  copy_weights(model, saved.part("model"));
  parts.optimizer.load(saved.part("optimizer"));
  loader.load(saved.part("loader"));
  if (parts.scaler) parts.scaler->load(saved.part("scaler"));
  if (parts.ema) parts.ema->load(saved.part("ema"));
  step = saved.integer("trainer/step");
  epoch = saved.integer("trainer/epoch");
  recorder.loss_sum = saved.number("trainer/epoch_loss");
  recorder.steps = saved.integer("trainer/epoch_steps");
  recorder.samples = saved.integer("trainer/epoch_samples");
  epoch_seconds = saved.number("trainer/epoch_seconds");
  best = saved.number("trainer/best");
  validations_since_best = saved.integer("trainer/validations_since_best");
  saved_step = step;
}

void Trainer::Impl::save() {
  if (saved_step == step) return;
  // Metrics of older weights would make this checkpoint look better or worse than it is.
  const bool validated = validated_step == step;
  const auto path = store.save({.step = step,
                                .state = state(),
                                .metrics = validated ? last_metrics : decltype(last_metrics){},
                                .config = resolved_yaml(options)});
  saved_step = step;
  sink.event({.kind = "checkpoint", .step = step, .text = "saved " + path.string()});
}

bool Trainer::Impl::resume() {
  const std::optional<checkpoint::Found> found = store.newest();
  if (!found) {
    log.warning(fmt::format("no checkpoint in {}/checkpoints: the run starts from the beginning",
                            run_dir(options)));
    return false;
  }
  for (const std::string& skipped : found->skipped) log.warning("checkpoint skipped: " + skipped);
  load(found->snapshot.state);
  last_metrics = found->snapshot.metrics;
  if (!last_metrics.empty()) validated_step = step;
  log.info(fmt::format("resumed from {} at step {}", found->dir.string(), step));
  return true;
}

}  // namespace braid::train
