// SPDX-License-Identifier: BSD-3-Clause
// What a run saves of itself, and how it goes on from there, on any number of ranks.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <sstream>

#include "braid/comm/texts.h"
#include "braid/memory/instruments.h"
#include "braid/train/session.h"
#include "train/trainer_impl.h"

namespace braid::train {
namespace {

// Names and shapes of what a checkpoint holds, without its numbers.
State listed(const checkpoint::Reader& reader) {
  State state;
  state.values = reader.values();
  for (const auto& [name, stored] : reader.tensors())
    state.tensors[name] =
        at::empty(stored.shape, at::TensorOptions(c10::kMeta).dtype(stored.dtype));
  return state;
}

}  // namespace

State Trainer::Impl::weights() const {
  State state;
  for (const Param& param : parts.stored())
    state.set(param.name, param.tensor.detach(), param.piece);
  for (const Param& buffer : model.buffers()) state.tensors[buffer.name] = buffer.tensor.detach();
  return state;
}

State Trainer::Impl::state() {
  settle();
  State all;
  all.put("model", weights());
  all.put("optimizer", parts.optimizer_state());
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

// The tensors of this run that a checkpoint has something for, to be filled.
State Trainer::Impl::wanted(const State& saved, const std::set<std::string>& elsewhere) {
  check_weights(model, saved.part("model"), {}, elsewhere);
  State all;
  all.put("model", weights());
  all.put("optimizer", parts.prepare_optimizer(saved.part("optimizer")));
  if (parts.scaler) all.put("scaler", parts.scaler->state());
  if (parts.ema) all.put("ema", parts.ema->state());
  return all;
}

void Trainer::Impl::take_values(const State& saved) {
  loader.load(saved.part("loader"));
  step = saved.integer("trainer/step");
  epoch = saved.integer("trainer/epoch");
  recorder.loss_sum = saved.number("trainer/epoch_loss");
  recorder.steps = saved.integer("trainer/epoch_steps");
  recorder.samples = saved.integer("trainer/epoch_samples");
  epoch_seconds = saved.number("trainer/epoch_seconds");
  best = saved.number("trainer/best");
  validations_since_best = saved.integer("trainer/validations_since_best");
  saved_step = step;
  limit_steps();
}

void Trainer::Impl::save() {
  if (saved_step == step) return;
  // Metrics of older weights would make this checkpoint look better or worse than it is.
  const bool validated = validated_step == step;
  progress("checkpoint of step");
  // Copies on their way to the disk lie on the host, whatever the device: memory.limit is not for
  // them.
  const memory::Instruments uncounted({});
  tell_of_save(/*wait=*/true);
  being_saved = store.save({.step = step,
                            .state = state(),
                            .metrics = validated ? last_metrics : decltype(last_metrics){},
                            .config = resolved_yaml(options)});
  saved_step = step;
  tell_of_save(/*wait=*/false);
}

// A checkpoint is called saved when all of it is on the disk.
void Trainer::Impl::tell_of_save(bool wait) {
  if (wait)
    store.wait();
  else
    store.check();
  if (being_saved.empty() || store.busy()) return;
  sink.event({.kind = "checkpoint", .step = saved_step, .text = "saved " + being_saved.string()});
  being_saved.clear();
}

// Parameters of the model that other ranks of the pipeline hold.
std::set<std::string> Trainer::Impl::names_elsewhere() const {
  if (parts.staged == nullptr) return {};
  std::string mine;
  for (const Param& param : model.params()) mine += param.name + '\n';
  std::set<std::string> names;
  for (const std::string& text : comm::exchange_texts(ranks.control, mine)) {
    std::istringstream lines(text);
    for (std::string name; std::getline(lines, name);) names.insert(name);
  }
  for (const Param& param : model.params()) names.erase(param.name);
  return names;
}

bool Trainer::Impl::resume() {
  // One that is whole but of another model ends the search: an older one would not fit better.
  std::optional<Complaint> misfit;
  const std::set<std::string> elsewhere = names_elsewhere();
  const auto found = store.newest([&](const checkpoint::Reader& reader) {
    State all;
    try {
      all = wanted(listed(reader), elsewhere);
    } catch (const StorageError& error) {
      misfit = error.complaint();
      return;
    }
    reader.fill(all);
  });
  if (misfit) throw StorageError(*misfit);
  if (!found) {
    if (ranks.first())
      log.warning(fmt::format("no checkpoint in {}/checkpoints: the run starts from the beginning",
                              run_dir(options)));
    return false;
  }
  parts.loaded();
  if (ranks.first())
    for (const std::string& skipped : found->skipped) log.warning("checkpoint skipped: " + skipped);
  take_values(found->snapshot.state);
  last_metrics = found->snapshot.metrics;
  if (!last_metrics.empty()) validated_step = step;
  log.info(fmt::format("resumed from {} at step {}", found->dir.string(), step));
  return true;
}

}  // namespace braid::train
