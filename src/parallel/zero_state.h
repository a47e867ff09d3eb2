// SPDX-License-Identifier: BSD-3-Clause
// What Zero keeps. zero_run.cpp gathers weights, zero_grads.cpp sums gradients.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/parallel/zero.h"
#include "parallel/host_landing.h"
#include "parallel/zero_flat.h"
#include "parallel/zero_order.h"

namespace braid::parallel {

struct ZeroBlock {
  std::string name;
  std::vector<ZeroFlat> flats;

  // Weights are gathered, and nothing has begun to give them back. Changes alike on all ranks;
  // whether the memory is there (ZeroFlat::there) may not, where ranks use different parameters.
  bool fresh = false;
  bool entered = false;  // backward is within it: weights are there. Changes alike, too
  // Runs of the present forward pass whose gradient has yet to pass the block's input.
  std::shared_ptr<int> runs = std::make_shared<int>(0);

  size_t trained = 0;   // parameters
  size_t missing = 0;   // gradients of this round
  bool closed = false;  // what is missing does not come
  bool launched = false;
};

struct Zero::State : std::enable_shared_from_this<Zero::State> {
  comm::Group shard, owners;
  ReplicaGroups replicas, of_shard;
  ZeroOptions options;
  bool resident = true;  // whole weights are always there: stages 1 and 2, or nobody to share with
  std::vector<ZeroBlock> blocks;
  size_t root = 0;
  std::vector<Param> pieces;
  class Hook;

  // zero.cpp
  void build(std::vector<ZeroUnit> units);
  void share_weights(const std::vector<ZeroUnit>& units);
  void make_pieces();
  void put_hooks();
  void take_hooks_off();
  size_t find(const std::string& name) const;
  void publish();
  bool stepped = false;            // finish() was called since the last publish()
  bool updated = false;            // a piece was changed between a finish() and its publish()
  std::vector<uint32_t> versions;  // of the pieces, at the last finish() or publish()
  std::vector<int64_t> prints;     // of their values at the last finish(), until `updated`

  // zero_run.cpp
  ZeroOrder order;
  bool in_root = false;
  std::optional<size_t> ahead;         // gathered for a run that is to come
  std::optional<size_t> gated_before;  // the run before has a gradient
  at::Tensor run_root(const at::Tensor& input, const BlockForward& forward);
  void refuse_without_root(size_t index) const;
  at::Tensor run_block(size_t index, const at::Tensor& input, const BlockForward& forward);
  at::Tensor run_again(size_t index, const at::Tensor& input, const BlockForward& forward);
  at::Tensor between_gates(size_t index, const at::Tensor& input, const BlockForward& forward);
  void guess(std::optional<size_t> next);
  void start(size_t index);
  void gather(size_t index);
  void drop(size_t index);
  void drop_all();
  void give_up(size_t index);
  void enter(size_t index, std::optional<size_t> before);
  void leave(size_t index, int& runs);

  // zero_grads.cpp
  std::vector<size_t> launch_order;  // of blocks with gradients, the same on all ranks
  size_t next = 0;                   // in launch_order
  std::optional<size_t> flying;      // block whose sum is on its way
  bool holding = false;
  bool open = false;    // a gradient came in this round
  bool begun = false;   // something was sent in this step
  HostLanding landing;  // of gradients that go to the host
  // Sums over replicas are made on the device: those go to the host at the end of a step.
  bool leaves_early(const ZeroFlat& flat) const {
    return options.host && flat.replicas.size() == 1;
  }
  bool sums_replicas() const { return replicas.talking() > 0; }
  void order_launches();
  void arrived(size_t block, ZeroFlat& flat, ZeroMember& member);
  void launch_ready();
  void launch(size_t index);
  void launch(ZeroFlat& flat);
  at::Tensor wire_of(ZeroFlat& flat) const;
  void take_sum_memory(ZeroFlat& flat, bool copied) const;
  void land(size_t index);
  void land(ZeroFlat& flat);
  void bring_to_host(ZeroFlat& flat, const at::Tensor& grads);
  void begin_round();
  void close_round();
  void close_late_round(bool end);
  void hold(bool on);
  void finish();
  void expect_no_update() const;
  void expect_update();
  void note_versions();
  void note_values();
  bool values_changed() const;
  void settle_host();
  void hand_out_grads();
  void give_up_grads(ZeroFlat& flat);
};

}  // namespace braid::parallel
