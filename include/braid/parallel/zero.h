// SPDX-License-Identifier: BSD-3-Clause
// ZeRO: the ranks of a group share the optimizer states (stage 1), the gradients too (2), and the
// weights too (3). For any LibTorch module.
//
//   parallel::Zero zero(net, {"layers.0", "layers.1"}, world, {.stage = 3});
//   at::Tensor y = zero.run("", x, [&](const at::Tensor& in) { return net->forward(in, zero); });
//   y.sum().backward();
//   zero.finish();     // .grad() of zero.params() is there: the pieces that this rank holds
//   optimizer.step();  // over zero.params(), not over the parameters of the net
//   zero.publish();    // the model computes with the new weights
//
// Pieces change between finish() and publish() alone: an update at another time, or one of other
// tensors, is an error. Buffers take the values of the first rank, as with Replicate.
//
// In the module each block runs as zero.run("layers.0", x, forward): stage 3 gathers its weights
// for it, one block ahead, and gives them back after. Stages 1 and 2 need no run(). Units stand in
// the order in which they run; the gradients of a unit travel when its last one has come.
//
// Accumulation: stage 1 adds on hold(true) without a word; stages 2 and 3 have no place for whole
// gradients, so each pass is summed and added to the pieces. finish() gives the gradients of all
// passes since the last finish(); those of the model itself are gone then. A parameter that no pass
// used has a gradient of zeros. All ranks make the same calls; each backward pass reaches at least
// one parameter on every rank.
//
// Pipelines: one Zero a stage, hold() before each of its backward passes; forward passes of other
// micro-batches may stand between. Where gradients of weights come after the backward pass of the
// input (kernels/deferred.h), and where several Zeros share a group, say `late`.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "braid/comm/group.h"
#include "braid/core/blocks.h"
#include "braid/core/module.h"
#include "braid/core/param.h"
#include "braid/memory/stash.h"
#include "braid/parallel/sync.h"

namespace braid::parallel {

// What is gathered together: one block. The unit "" holds all that is in no block; it is gathered
// by run("") and stays until its gradients are taken.
struct ZeroUnit {
  std::string name;
  std::vector<Param> params;
};

// Parameters by the block they are in: "blocks.3" has those of blocks.3.*, the innermost one wins.
std::vector<ZeroUnit> units_of(const std::vector<Param>& params,
                               const std::vector<std::string>& blocks);

struct ZeroOptions {
  int stage = 1;               // 1: optimizer states, 2: and gradients, 3: and parameters
  bool average = true;         // false: the loss is already divided by the global batch
  bool keep_gathered = false;  // stage 3: keep a block's weights from forward to backward: a third
                               // less traffic for the memory of all weights
  bool late = false;           // a gradient may come at any time before finish(), several times,
                               // also after backward has left its block: sums start in hold()
                               // (stages 2 and 3) and finish() alone, of the units that got some,
                               // which are the same on all ranks
  bool host = false;        // stage 3: the pieces and their gradients lie on the host, page-locked
                            // for a GPU; blocks visit the device one by one, also for a group of
                            // one rank. params() are tensors of the host then
  bool give_grads = false;  // finish() hands gradients over: their memory goes with .grad()
  bool same_start = true;   // take the weights of the first rank before anything else
  std::optional<c10::ScalarType> reduce = {};  // dtype of gradients on the wire, of their sum and
                                               // of .grad() of the pieces; unset: the parameter's
  // Fills elements first, first + 1, ... of a dry parameter; needed only for dry ones, which then
  // get their memory piece by piece.
  std::function<void(const std::string& param, const at::Tensor& values, int64_t first)> initial =
      {};
  std::vector<Param> buffers = {};  // take the values of the first rank; a module brings its own
};

class Zero final : public Sync, public BlockRunner {
 public:
  // A torch::nn::Module or a holder of one, with its buffers. `blocks`: names of its parts that run
  // through run(), in order.
  template <class Module>
    requires(IsModule<Module> || HoldsModule<Module>)
  Zero(Module& module, const std::vector<std::string>& blocks, const comm::Group& shard,
       ZeroOptions options = {})
      : Zero(units_of(named_params(module), blocks), shard, comm::Group(),
             with_buffers(std::move(options), named_buffers(module))) {}
  // `shard`: ranks that share the states. `replicas` (hybrid): ranks that hold the same pieces in
  // other shard groups; gradients are summed over both.
  Zero(std::vector<ZeroUnit> units, const comm::Group& shard, const comm::Group& replicas = {},
       ZeroOptions options = {});
  // Each parameter with its own replicas, which hold the same pieces: of one mesh, with parameters
  // of the same names in the same order. `owners`: ranks that together hold the model.
  Zero(std::vector<ZeroUnit> units, const comm::Group& shard, const ReplicasOf& replicas,
       const comm::Group& owners, ZeroOptions options);
  ~Zero() override;  // takes its hooks off; weights of stage 3 are gone with it
  Zero(const Zero&) = delete;
  Zero& operator=(const Zero&) = delete;

  // This rank's pieces, each a flat tensor; a parameter that is not trained has no gradient. One
  // that is registered twice is there once, under its first name. Pieces of a parameter that is
  // itself a piece count in its box.
  const std::vector<Param>& params() const override;
  const comm::Group& owners() const override;  // the shard group, if nothing else was given
  void hold(bool on) override;
  void finish() override;
  // After a finish() only trained weights are sent: an optimizer changes no others.
  void publish() override;

  at::Tensor run(const std::string& block, const at::Tensor& input,
                 const BlockForward& forward) override;

  memory::Traffic traffic() const;  // of pieces on the host, since the beginning

 private:
  static ZeroOptions with_buffers(ZeroOptions options, std::vector<Param> buffers) {
    if (options.buffers.empty()) options.buffers = std::move(buffers);
    return options;
  }
  struct State;
  std::shared_ptr<State> state_;  // shared with the graphs of forward passes
};

}  // namespace braid::parallel
