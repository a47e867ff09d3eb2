// SPDX-License-Identifier: BSD-3-Clause
// A run beside its plan: plan.json in its folder.
#include <algorithm>

#include "braid/core/accelerator.h"
#include "braid/train/expected.h"
#include "train/trainer_impl.h"

namespace braid::train {

// A plan that cannot be read is no reason to stop a run that can.
void Trainer::Impl::open_plan() {
  std::optional<Expected> expected;
  try {
    expected = read_expected(run_dir(options));
  } catch (const Error& error) {
    if (ranks.first()) log.warning(error.complaint().what + ": not compared");
  }
  plan = PlanWatch(std::move(expected), {.device = device.is_cuda() ? "cuda" : "cpu",
                                         .world = ranks.mesh.world(),
                                         .stage = ranks.mesh.index(parallel::Axis::pipeline),
                                         .stages = ranks.mesh.size(parallel::Axis::pipeline),
                                         .first = ranks.first()});
  const std::string refusal = plan.refusal();
  if (!refusal.empty() && ranks.first()) log.warning(refusal);
}

int64_t Trainer::Impl::peak_of_tensors() const {
  if (device.is_cuda()) return accelerator()->peak_requested(device.index());
  return ranks.ledger != nullptr ? ranks.ledger->highest(memory::place_of(device)) : 0;
}

void Trainer::Impl::compare_with_plan(double seconds) {
  if (!plan.watches() || profiler->measures()) return;
  peak_bytes = std::max(peak_bytes, peak_of_tensors());
  plan.step(seconds);
  for (const std::string& line : plan.look(peak_bytes)) {
    log.warning(line);
    sink.event({.kind = "plan", .step = step, .text = line});
  }
}

}  // namespace braid::train
