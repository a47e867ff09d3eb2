// SPDX-License-Identifier: BSD-3-Clause
#include "train/graph.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "braid/core/observe.h"
#include "braid/train/layout.h"

namespace braid::train {
namespace {

constexpr int warm_steps = 2;      // kernels are chosen and workspaces made without a capture
constexpr size_t most_graphs = 4;  // two buffers of the loader, and a smaller last batch

template <class Result>
auto values_of(Result& result) {
  return std::array{&result.loss,  &result.grad_norm, &result.found_inf,
                    &result.scale, &result.aux_loss,  &result.max_load};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string on_gpus_refusal(const RunOptions& options, int64_t world) {
  if (world > 1)
    return fmt::format("there are {} ranks, whose messages are sent by the host", world);
  if (!options.memory.offload.empty()) return "memory.offload moves parts of the step to the host";
  if (options.memory.stashes())
    return "memory.stash and memory.pack_masks stand between autograd and what it keeps";
  if (options.memory.limit.count > 0) return "memory.limit watches each operator as it runs";
  if (experts_of(options.model) > 0)
    return "the host reads how many tokens each expert of the mixtures gets";
  if (options.model.name == nn::ModelName::own && options.train.graph != UseGraph::on)
    return "the model is the program's own: what its forward pass draws or reads on the host would "
           "be replayed as it was (train.graph = on if it does neither)";
  if (options.model.kernels == nn::Kernels::reference)
    return "model.kernels = reference runs operator by operator, as upstream does";
  return "";
}

}  // namespace

bool replays_steps(const RunOptions& options, int64_t world) {
  return options.train.graph != UseGraph::off && on_gpus_refusal(options, world).empty();
}

std::string graph_refusal(const RunOptions& options, c10::Device device, const Ranks& ranks) {
  if (!device.is_cuda()) return "the step runs on the CPU, and graphs are of a GPU";
  return on_gpus_refusal(options, ranks.mesh.world());
}

at::Tensor packed(const StepResult& result) {
  std::vector<at::Tensor> values;
  for (const at::Tensor* value : values_of(result))
    if (value->defined()) values.push_back(value->detach().to(c10::kDouble).reshape({}));
  return values.empty() ? at::Tensor() : at::stack(values);
}

StepResult unpacked(const at::Tensor& values, const StepResult& like) {
  StepResult result = like;
  int64_t next = 0;
  for (at::Tensor* value : values_of(result))
    if (value->defined()) *value = values.select(0, next++);
  return result;
}

StepGraph::StepGraph(std::unique_ptr<CapturePool> pool, c10::Device device, Body body)
    : pool_(std::move(pool)),
      body_(std::move(body)),
      lr_(at::zeros({}, at::TensorOptions(c10::kDouble).device(device))),
      step_(at::zeros({}, at::TensorOptions(c10::kLong).device(device))) {}

void StepGraph::forget() {
  entries_.clear();
  seen_.clear();
}

// Results are copied out of the pool, whose memory the next step takes again.
StepResult StepGraph::eager(const data::Batch& batch, const nn::Pass& pass, double lr) {
  StepResult result;
  at::Tensor values;
  pool_->run([&] {
    result = body_(batch, pass, lr);
    values = packed(result);
  });
  return values.defined() ? unpacked(values.clone(), result) : result;
}

bool StepGraph::warm(const Shape& shape) {
  const auto found = std::find_if(seen_.begin(), seen_.end(),
                                  [&](const Seen& seen) { return seen.shape == shape; });
  if (found == seen_.end()) {
    if (seen_.size() < 4 * most_graphs) seen_.push_back({shape, 1});
    return false;
  }
  return ++found->steps > warm_steps;
}

StepGraph::Entry* StepGraph::find(const Shape& shape, const data::Batch& batch) {
  for (Entry& entry : entries_) {
    if (entry.shape != shape) continue;
    const bool same = entry.input == batch.input.const_data_ptr() &&
                      entry.target == batch.target.const_data_ptr();
    if (entry.own_input.defined() ? !stays(shape, batch) : same) return &entry;
  }
  return nullptr;
}

// Whether a graph may read the batch where it is: of two places, no more.
bool StepGraph::stays(const Shape& shape, const data::Batch& batch) const {
  if (!batch.fixed) return false;
  int others = 0;
  for (const Entry& entry : entries_) {
    if (entry.shape != shape || entry.own_input.defined()) continue;
    if (entry.input == batch.input.const_data_ptr()) return true;
    ++others;
  }
  return others < 2;
}

// A batch whose memory does not come again is copied to where the graph reads.
StepGraph::Entry* StepGraph::capture(const Shape& shape, const data::Batch& batch, nn::Pass pass) {
  if (entries_.size() == most_graphs) return nullptr;
  Entry entry;
  entry.shape = shape;
  data::Batch read = batch;
  if (!stays(shape, batch)) {
    read.input = entry.own_input = at::empty_like(batch.input);
    read.target = entry.own_target = at::empty_like(batch.target);
  }
  entry.input = read.input.const_data_ptr();
  entry.target = read.target.const_data_ptr();
  pass.device_step = step_;
  try {
    entry.captured = pool_->capture([&] {
      entry.result = body_(read, pass, optim::LearningRate(lr_));
      entry.values = packed(entry.result);
    });
  } catch (const c10::Error& error) {
    failure_ = first_line(error.what_without_backtrace());
    return nullptr;
  }
  return &entries_.emplace_back(std::move(entry));
}

StepResult StepGraph::replay(Entry& entry, const data::Batch& batch) {
  if (entry.own_input.defined()) {
    entry.own_input.copy_(batch.input);
    entry.own_target.copy_(batch.target);
  }
  entry.captured->replay();
  ++replays_;
  StepResult result = unpacked(entry.values.clone(), entry.result);
  result.weight = std::accumulate(batch.weights.begin(), batch.weights.end(), int64_t{0});
  return result;
}

StepResult StepGraph::run(const data::Batch& batch, const nn::Pass& pass, const GraphStep& step) {
  const Shape shape{.input = batch.input.sizes().vec(),
                    .target = batch.target.sizes().vec(),
                    .input_dtype = batch.input.scalar_type(),
                    .target_dtype = batch.target.scalar_type(),
                    .shares = step.shares,
                    .first = batch.first + pass.first_sample,
                    .samples = batch.samples};
  const bool counts =
      std::any_of(step.shares.begin(), step.shares.end(), [](double share) { return share > 0; });
  const bool replayable = counts && !step.eager && observer() == nullptr && failure_.empty();
  if (!replayable || !warm(shape)) return eager(batch, pass, step.lr);
  Entry* entry = find(shape, batch);
  if (entry == nullptr) entry = capture(shape, batch, pass);
  if (entry == nullptr) return eager(batch, pass, step.lr);
  lr_.fill_(step.lr);
  step_.fill_(pass.step);
  return replay(*entry, batch);
}

}  // namespace braid::train
