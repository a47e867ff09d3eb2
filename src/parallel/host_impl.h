// SPDX-License-Identifier: BSD-3-Clause
// What HostParams keeps. host.cpp makes and publishes weights, host_grads.cpp brings gradients
// down, host_update.cpp applies and saves them.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "braid/core/accelerator.h"
#include "braid/parallel/host.h"
#include "parallel/host_landing.h"
#include "parallel/host_worker.h"

namespace braid::parallel {

struct HostSlot {
  bool trained = false;
  bool wide = false;     // the host has more bits than the device
  bool updated = false;  // at least once
  bool sent = false;     // on its way to the device, since the last publish()
  // Gradients of the step that runs and of one that waits, in the shape of the parameter.
  std::array<at::Tensor, 2> grads;
  std::array<bool, 2> came = {};
};

struct HostTile {
  at::Tensor memory;  // bytes
  std::unique_ptr<Moment> done;
};

struct HostParams::Impl {
  HostOptions options;
  std::unique_ptr<Sync> inner;
  comm::Group alone = {};
  std::vector<Param> below, params;
  std::vector<HostSlot> slots;
  memory::Traffic traffic;
  class Hook;

  // host.cpp
  void build();
  void make_tiles();
  void mark_all() const;
  void put_hooks();
  void publish();
  void send(size_t index);
  std::array<HostTile, 2> tiles;
  size_t turn = 0;  // of tiles

  // host_grads.cpp
  size_t set = 0;     // of gradients, that the step now running fills
  bool over = false;  // finish() was called: the next gradient is of another step
  HostLanding landing;
  void arrived(size_t index);
  void take(size_t index, at::Tensor grad);
  void give_homes(size_t index, c10::ScalarType dtype);
  void finish();

  // host_update.cpp
  struct Waiting {
    HostUpdate update;
    HostApply apply;
    size_t set = 0;
  };
  std::optional<Waiting> waiting;
  bool running = false;  // the worker applies what waits
  HostWorker worker;     // last: its work uses all of the above
  bool late(int64_t step) const { return options.delay_from > 0 && step >= options.delay_from; }
  void hand_out(size_t from);
  void begin(int64_t step);
  void send_early(const Param& param);
  void join();
  void update(const HostUpdate& update, const HostApply& apply, int64_t step);
  State state() const;
  State prepare(const State& saved, const HostApply& apply);
  void take_waiting(const State& saved, const HostApply& apply, State& wanted);
  void loaded();
};

}  // namespace braid::parallel
