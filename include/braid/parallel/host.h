// SPDX-License-Identifier: BSD-3-Clause
// The optimizer's side of a model on the host: master weights, gradients, and whatever an optimizer
// makes of them. The device keeps weights in their own dtype and no gradients.
//
//   parallel::HostParams host(named_params(*net));        // or over a Replicate or a Zero
//   optim::Optimizer adamw(host.params(), {.lr = 3e-4});  // its states are on the host, too
//   loss.backward();     // gradients go to the host as they come
//   host.finish();       // .grad() of host.params() is there
//   adamw.step();        // on the CPU
//   host.publish();      // tile by tile to the device, in the dtype of the weights
//
// With `delay_from` updates come one step late, so that the CPU applies gradients while the device
// makes the next ones: up to that step all is as ever; its own gradients wait; from the next one on
// the weights of step i + 1 are those of step i after the gradients of step i - 1.
//
//   host.begin(step);    // what waits is applied, beside the passes below
//   loss.backward();
//   host.finish();
//   host.update({.lr = lr}, apply, step);   // instead of step() and publish()
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "braid/core/param.h"
#include "braid/core/state.h"
#include "braid/memory/stash.h"
#include "braid/parallel/sync.h"

namespace braid::parallel {

struct HostOptions {
  c10::ScalarType master = c10::kFloat;  // of narrower weights; wider ones stay as they are
  int64_t delay_from = 0;                // step whose gradients are the first to wait; 0: none
  int64_t tile = int64_t{4} << 20;       // elements that travel to the device together
  int64_t window = 2;                    // gradients on their way to the host at a time
  bool stream = true;            // one rank alone: within the backward pass; else in finish()
  bool weights_on_host = false;  // the inner sync keeps its pieces there: nothing travels
};

// What an update needs besides gradients: scalars of the host, or undefined (optim/optimizer.h).
struct HostUpdate {
  double lr = 0;
  at::Tensor found_inf = {}, inverse = {};  // inverse: of the loss scale, and what clips
  // Not empty: wants to be told of each parameter whose values are final. It travels to the device
  // while the others are updated.
  std::function<void(const Param&)> updated = {};
};
using HostApply = std::function<void(const HostUpdate&)>;

class HostParams final : public Sync {
 public:
  // One rank alone: gradients leave the device within the backward pass, and those of further
  // passes are added on the host. Takes the hook of each parameter.
  explicit HostParams(const std::vector<Param>& params, HostOptions options = {});
  // Those that `inner` updates; their gradients leave the device in finish().
  explicit HostParams(std::unique_ptr<Sync> inner, HostOptions options = {});
  ~HostParams() override;
  HostParams(const HostParams&) = delete;
  HostParams& operator=(const HostParams&) = delete;

  // Host tensors that the optimizer updates. A parameter that is not trained is there as it is.
  const std::vector<Param>& params() const override;
  const comm::Group& owners() const override;
  void hold(bool on) override;
  void finish() override;
  void publish() override;

  Sync* inner() const;                      // null: one rank alone
  const std::vector<Param>& below() const;  // params() as the device has them
  // Weights as they are saved: in the dtype of the model, so that a run without a host reads them.
  std::vector<Param> stored() const;
  void mark_memory() const;  // tells the instruments what lies where

  void begin(int64_t step);
  // Now and published, or in the next step. `apply` updates params() from their gradients; for one
  // that comes late it may run on another thread, and lives as long as this object.
  void update(const HostUpdate& update, const HostApply& apply, int64_t step);

  // "<parameter>/master" of narrower weights that were updated, "<parameter>/delayed" and what else
  // an update needs that has yet to come. Shares memory.
  State state() const;
  // State to be filled by whoever reads a checkpoint; loaded() afterwards, then publish().
  State prepare(const State& saved, const HostApply& apply);
  void loaded();

  memory::Traffic traffic() const;  // since the beginning

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::parallel
