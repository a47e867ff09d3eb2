// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/measure.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>

#include "braid/core/accelerator.h"
#include "braid/core/observe.h"
#include "braid/core/rng.h"
#include "braid/memory/instruments.h"
#include "braid/train/evaluate.h"
#include "braid/train/layout.h"
#include "train/rig.h"

namespace braid::train {
namespace {

using Sizes = std::vector<int64_t>;

struct SampleShape {
  Sizes input, target;
  bool tokens = false;   // the input is int64
  bool classes = false;  // the target is int64
};

SampleShape sample_shape(const RunOptions& options) {
  const nn::ModelOptions& model = options.model;
  const bool labels = options.train.loss == nn::Loss::cross_entropy;
  switch (model.name) {
    case nn::ModelName::vit: {
      const Sizes& image = model.vit.image;
      return {{model.vit.channels_in, image[0], image[1]},
              {model.vit.channels_out, image[0], image[1]}};
    }
    case nn::ModelName::swinir: {
      const nn::SwinirOptions& o = model.swinir;
      return {{o.channels, o.image[0], o.image[1]},
              {o.channels, o.scale * o.image[0], o.scale * o.image[1]}};
    }
    case nn::ModelName::gpt:
    case nn::ModelName::llama: {
      const int64_t most =
          model.name == nn::ModelName::gpt ? model.gpt.sequence : model.llama.sequence;
      const int64_t tokens = std::min(most, options.data.sequence);
      return {{tokens}, {tokens}, true, true};
    }
    case nn::ModelName::mlp:
    case nn::ModelName::own:
      break;
  }
  return {{model.mlp.inputs}, labels ? Sizes{} : Sizes{model.mlp.outputs}, false, labels};
}

at::Tensor zeros_batch(int64_t samples, Sizes sizes, at::TensorOptions options) {
  sizes.insert(sizes.begin(), samples);
  return at::zeros(sizes, options);
}

// The samples of a rank, with padding.
int64_t local_batch_of(const TrainOptions& options, int64_t batch_ranks) {
  return (global_batch_of(options, batch_ranks) + batch_ranks - 1) / batch_ranks;
}

Ranks measured_ranks(const RunOptions& options, const MeasureOptions& how) {
  if (how.ranks != nullptr) return *how.ranks;
  if (how.world == 1) return {};  // whatever the mesh: all of it in one process
  return dry_ranks(
      parallel::Mesh(options.mesh, how.world, how.rank, static_cast<int>(options.train.zero)));
}

// Tokens or classes of the model.
int64_t classes_of(const nn::ModelOptions& model) {
  if (model.name == nn::ModelName::gpt) return model.gpt.vocabulary;
  return model.name == nn::ModelName::llama ? model.llama.vocabulary : model.mlp.outputs;
}

// Values as data has them. Zeros draw less power, and a loss relative to a target of zeros is none.
void fill_batch(const data::Batch& batch, const RunOptions& options) {
  const auto classes = static_cast<double>(classes_of(options.model));
  const auto fill = [&](const at::Tensor& tensor, const char* name) {
    const bool whole = !tensor.is_floating_point();
    const at::Tensor values = at::empty(tensor.sizes(), tensor.options().dtype(c10::kFloat));
    fill_uniform(values, random_key(1, name), whole ? 0 : -1, whole ? classes : 1);
    tensor.copy_(whole ? values.floor().clamp_max_(classes - 1) : values);
  };
  fill(batch.input, "input");
  fill(batch.target, "target");
}

class SegmentNames final : public SegmentRunner {
 public:
  size_t together(const std::vector<std::string>&, size_t) const override { return 1; }
  at::Tensor run(SegmentKind kind, const std::string& name, const std::vector<at::Tensor>& inputs,
                 const SegmentForward& forward) override {
    if (kind == SegmentKind::blocks) names.push_back(name);
    return forward(inputs);
  }
  std::vector<std::string> names;
};

}  // namespace

Rig::Rig(const RunOptions& given, const MeasureOptions& how)
    : options(given),
      ranks(measured_ranks(given, how)),
      model(nn::make_model(
          options.model,
          {.seed = static_cast<uint64_t>(options.seed),
           .precision = policy_of(options.train),
           .device = how.device,
           .dry_params = options.train.zero == 3 && (ranks.mesh.size(parallel::Axis::shard) > 1 ||
                                                     options.memory.offloads("parameters")),
           .layout = layout_of(options, ranks),
           .pack_masks = options.memory.pack_masks})),
      parts(*model, options, how.device, ranks),
      batch(empty_batch(options, local_batch_of(options.train, ranks.mesh.batch_ranks()),
                        how.device)) {
  batch.global_samples = batch.samples * ranks.mesh.batch_ranks();
  if (how.batches() == 1) return;
  ahead = empty_batch(options, batch.samples, how.device);
  mark(ahead.input, MemoryKind::input);
  mark(ahead.target, MemoryKind::input);
}

void Rig::begin() {
  if (ranks.alone()) return;
  double weight = 0;
  for (const int64_t sample : batch.weights) weight += static_cast<double>(sample);
  parts.rounds.begin({.weight = weight});
}

void Rig::backward() {
  begin();
  parts.step.gradients(batch, pass());
  parts.optimizer.zero_grad();
}

void Rig::whole_step() {
  begin();
  parts.run(batch, pass(), options.optimizer.rule.lr);
}

void Rig::evaluate() {
  const int64_t samples = std::min(
      batch.samples,
      evaluation_loader(options, batch.input.device(), ranks.mesh.batch_ranks()).global_batch /
          ranks.mesh.batch_ranks());
  data::Batch part = batch;
  part.input = batch.input.narrow(0, 0, samples);
  part.target = batch.target.narrow(0, 0, samples);
  part.samples = samples;
  Evaluation(options.train.loss, [&](const at::Tensor& input) {
    return parts.forward(*model, input, {});
  }).add(*model, part);
}

Witness::Witness(const MeasureOptions& how)
    : gpu_(how.device.is_cuda() && !how.dry ? accelerator() : nullptr), index_(how.device.index()) {
  if (gpu_ == nullptr) return;
  gpu_->reset_peak(index_);
  before_ = gpu_->requested(index_);
}

Phase phase_so_far(const memory::Ledger& ledger, const MeasureOptions& how) {
  const memory::Place place = memory::place_of(how.device);
  Phase phase;
  phase.peak = ledger.peak(place);
  phase.without_scratch = ledger.peak_without_scratch(place);
  phase.scratch = ledger.scratch(place);
  phase.left = ledger.live(place);
  if (!how.device.is_cpu()) {
    phase.host = ledger.highest(memory::cpu) + ledger.highest(memory::pinned_host);
    phase.pinned = ledger.highest(memory::pinned_host);
  }
  return phase;
}

data::Batch empty_batch(const RunOptions& options, int64_t samples, c10::Device device) {
  const SampleShape shape = sample_shape(options);
  const auto dtype = [](bool whole) { return whole ? c10::kLong : c10::kFloat; };
  const at::TensorOptions there = at::TensorOptions().device(device);
  data::Batch batch;
  batch.input = zeros_batch(samples, shape.input, there.dtype(dtype(shape.tokens)));
  batch.target = zeros_batch(samples, shape.target, there.dtype(dtype(shape.classes)));
  batch.samples = samples;
  batch.weights.assign(static_cast<size_t>(samples), shape.tokens ? shape.target[0] : 1);
  batch.fixed = true;
  return batch;
}

Measured measure(const RunOptions& options, MeasureOptions how) {
  const auto start = std::chrono::steady_clock::now();
  memory::Ledger ledger;
  Measured measured;
  {
    const memory::Instruments on({.ledger = &ledger, .dry = how.dry});
    Rig rig(options, how);
    measured.backward = phase_of(ledger, how, [&] { rig.backward(); });
    measured.first_step = phase_of(ledger, how, [&] { rig.whole_step(); });
    {
      const memory::Instruments logged({.ledger = &ledger, .log = &measured.log, .dry = how.dry});
      measured.second_step = phase_of(ledger, how, [&] { rig.whole_step(); });
    }
    measured.evaluation = phase_of(ledger, how, [&] { rig.evaluate(); });
  }
  measured.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return measured;
}

memory::OperatorLog log_step(const RunOptions& options, MeasureOptions how) {
  memory::OperatorLog log;
  const memory::Instruments on({.dry = how.dry});
  Rig rig(options, how);
  const memory::Instruments logged({.log = &log, .dry = how.dry});
  rig.whole_step();
  return log;
}

void watch_step(memory::Ledger& ledger, const RunOptions& options, MeasureOptions how) {
  const memory::Instruments on({.ledger = &ledger, .dry = how.dry});
  Rig rig(options, how);
  rig.whole_step();
  ledger.begin();
  rig.whole_step();
}

std::vector<double> time_steps(const RunOptions& options, c10::Device device, int steps) {
  Rig rig(options, {.device = device, .dry = false, .batch_ahead = false});
  fill_batch(rig.batch, options);
  const auto finish = [&] {
    if (device.is_cuda()) accelerator()->synchronize(device.index());
    return std::chrono::steady_clock::now();
  };
  rig.whole_step();
  for (int i = 0; rig.parts.graph != nullptr && i < 3; ++i) rig.whole_step();  // until one replays
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) {
    const auto start = finish();
    rig.whole_step();
    seconds.push_back(std::chrono::duration<double>(finish() - start).count());
  }
  return seconds;
}

std::vector<std::string> segment_names(const RunOptions& options, MeasureOptions how) {
  const memory::Instruments on({.dry = how.dry});
  Rig rig(options, how);
  SegmentNames segments;
  nn::Pass pass = rig.pass();
  pass.segments = &segments;
  const at::NoGradGuard no_grad;
  rig.parts.forward(*rig.model, rig.batch.input.narrow(0, 0, 1), pass);
  return segments.names;
}

}  // namespace braid::train
