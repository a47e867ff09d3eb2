// SPDX-License-Identifier: BSD-3-Clause
// Data parallelism: every rank of an axis holds the whole model and a share of the batch.
//
//   parallel::Replicate replicas(net, world);
//   loss.backward();      // full buckets are summed while backward still runs
//   replicas.finish();    // every .grad() is now the mean over the axis
//   optimizer.step();     // of torch or of braid
//
// For any LibTorch module. All ranks construct it with the same parameters, and call backward and
// finish the same number of times. Buffers (running means of BatchNorm) have the values of the
// first rank after construction and after each finish(), as DistributedDataParallel has them before
// each forward pass; batch statistics themselves are those of a rank's own samples.
//
// Where the ranks of a group have different parts of a model (experts, tensor parallelism), each
// parameter has its own replicas:
//
//   parallel::Replicate parts(params, [&](const Param& p) { return p.expert ? few : all; }, owners,
//                             {.average = false});
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "braid/comm/group.h"
#include "braid/core/module.h"
#include "braid/core/param.h"
#include "braid/parallel/sync.h"

namespace braid::parallel {

struct ReplicateOptions {
  int64_t bucket_bytes = 25 << 20;  // big enough to fill the links, small enough to start early
  bool average = true;  // over the group of each parameter; false: the loss is already divided by
                        // the global batch
  bool same_start = true;  // take the weights of the first rank before anything else
  bool late = false;  // a gradient may come several times and at any time before finish(), which
                      // then starts all sums (pipelines with kernels/deferred.h)
  bool find_unused = false;  // one more small message a step; without, a parameter that no rank
                             // used gets a gradient of zeros instead of none
  std::optional<c10::ScalarType> wire = {};  // dtype on the wire, e.g. bf16: half the bytes
  std::vector<Param> buffers = {};  // take the values of the first rank; a module brings its own
};

class Replicate final : public Sync {
 public:
  // A torch::nn::Module or a holder of one, with its buffers.
  template <class Module>
    requires(IsModule<Module> || HoldsModule<Module>)
  Replicate(Module& module, const comm::Group& axis, ReplicateOptions options = {})
      : Replicate(named_params(module), axis,
                  with_buffers(std::move(options), named_buffers(module))) {}
  Replicate(const std::vector<Param>& params, const comm::Group& axis,
            ReplicateOptions options = {});
  // `owners`: ranks that together hold the model. The groups are made of axes of one mesh, and
  // their ranks have parameters of the same names in the same order. Sums of different groups start
  // in one order on all ranks.
  Replicate(const std::vector<Param>& params, const ReplicasOf& replicas, const comm::Group& owners,
            ReplicateOptions options);
  ~Replicate() override;  // takes its hooks off the parameters
  Replicate(Replicate&&) noexcept;
  Replicate& operator=(Replicate&&) noexcept;

  // The parameters given, each once, whole on every rank.
  const std::vector<Param>& params() const override;
  const comm::Group& owners() const override;  // this rank alone, if nothing else was given
  // While on, backward adds to local gradients only: for all but the last one of a step.
  void hold(bool on = true) override;
  void finish() override;   // waits for the sums in flight; once an optimizer step, after backward
  void publish() override;  // nothing: the weights that an optimizer updates are the model's

 private:
  static ReplicateOptions with_buffers(ReplicateOptions options, std::vector<Param> buffers) {
    if (options.buffers.empty()) options.buffers = std::move(buffers);
    return options;
  }
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::parallel
