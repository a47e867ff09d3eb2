// SPDX-License-Identifier: BSD-3-Clause
// What a checkpoint has of a step: the same names and dtypes wherever the optimizer is.
#include <fmt/format.h>

#include "braid/core/error.h"
#include "train/step_parts.h"

namespace braid::train {
namespace {

void refuse_waiting(const State& saved) {
  for (const auto& [name, tensor] : saved.tensors)
    if (name.ends_with("/delayed"))
      throw StorageError(
          {.what = fmt::format("the checkpoint has a gradient that waits for its update: {}", name),
           .why = "it was saved by a run with memory.delay, whose updates come one step late on "
                  "the host",
           .fix = "--set memory.offload=[optimizer]: it is applied before the first step"});
}

}  // namespace

std::vector<Param> StepParts::stored() const { return host != nullptr ? host->stored() : params; }

std::vector<Param> StepParts::on_device() const { return host != nullptr ? host->below() : params; }

State StepParts::optimizer_state() const {
  State state = optimizer.state();
  if (host == nullptr) return state;
  const State more = host->state();
  for (const auto& [name, tensor] : more.tensors) state.tensors[name] = tensor;
  for (const auto& [name, value] : more.values) state.values[name] = value;
  for (const auto& [name, piece] : more.pieces) state.pieces[name] = piece;
  return state;
}

State StepParts::prepare_optimizer(const State& saved) {
  State wanted = optimizer.prepare(saved);
  if (graph != nullptr) graph->forget();
  if (host == nullptr) {
    refuse_waiting(saved);
    return wanted;
  }
  const State more = host->prepare(saved, [this](const parallel::HostUpdate& late) {
    optimizer.step(late.lr, late.found_inf, late.inverse, late.updated);
  });
  for (const auto& [name, tensor] : more.tensors) wanted.tensors[name] = tensor;
  for (const auto& [name, piece] : more.pieces) wanted.pieces[name] = piece;
  return wanted;
}

void StepParts::loaded() {
  if (host != nullptr) host->loaded();
  if (sync != nullptr) sync->publish();
}

}  // namespace braid::train
