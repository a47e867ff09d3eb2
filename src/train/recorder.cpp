// SPDX-License-Identifier: BSD-3-Clause
#include "train/recorder.h"

#include <fmt/format.h>

#include <cmath>

#include "braid/core/error.h"
#include "train/finite.h"
#include "train/graph.h"

namespace braid::train {

void Recorder::add(StepRecord record, StepResult result) {
  Late late{record, std::move(result), nullptr};
  const bool gpu = late.result.loss.defined() && late.result.loss.is_cuda();
  if (gpu) {
    const at::Tensor values = packed(late.result);
    const at::Tensor host = accelerator()->pinned_like(values);
    host.copy_(values, /*non_blocking=*/true);
    late.there = accelerator()->moment(values.get_device());
    late.result = unpacked(host, late.result);
  }
  pending_.push_back(std::move(late));
  const size_t newest = gpu ? 1 : 0;  // its step has only begun
  if (static_cast<int64_t>(pending_.size() - newest) >= read_every_) flush_all_but(newest);
}

void Recorder::read(StepRecord& record, const StepResult& result) {
  record.loss = result.loss.defined() ? result.loss.item<double>() : 0;
  if (result.scale.defined()) record.loss_scale = result.scale.item<double>();
  record.skipped = result.found_inf.defined() && result.found_inf.item<double>() != 0;
  if (result.aux_loss.defined()) record.aux_loss = result.aux_loss.item<double>();
  if (result.max_load.defined()) record.max_load = result.max_load.item<double>();
  if (result.grad_norm.defined() && !record.skipped)  // of infinite gradients there is no norm
    record.grad_norm = result.grad_norm.item<double>();
}

void Recorder::flush() { flush_all_but(0); }

void Recorder::flush_all_but(size_t newest) {
  std::vector<Late> batch;
  batch.swap(pending_);
  for (size_t i = batch.size() - newest; i < batch.size(); ++i)
    pending_.push_back(std::move(batch[i]));
  batch.resize(batch.size() - newest);
  for (auto& [record, result, there] : batch) {
    if (there != nullptr) there->host_wait();
    read(record, result);
    sink_.step(record);
    // Not even fp16 may go on: the scale touches the gradients, not this loss.
    if (!std::isfinite(record.loss))
      throw NotFiniteError(
          {.what = fmt::format("the loss is {} at step {}", bad_value(record.loss), record.step),
           .why = "a NaN or an infinity arose in the data, the weights or an activation",
           .fix =
               "find it with --set train.look_for_nan=true; a lower optimizer.lr, train.clip=1 or "
               "precision bf16 instead of fp16 often help"});
    loss_sum += record.loss;
    ++steps;
    samples += record.samples;
  }
}

}  // namespace braid::train
