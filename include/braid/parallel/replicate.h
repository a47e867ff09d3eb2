// SPDX-License-Identifier: BSD-3-Clause
// Data parallelism: every rank of an axis holds the whole model and a share of the batch.
//
//   parallel::Replicate replicas(named_params(*model), world);
//   loss.backward();      // full buckets are summed while backward still runs
//   replicas.finish();    // every .grad() is now the mean over the axis
//
// For any LibTorch module. All ranks construct it, call backward and finish the same number of
// times.
//
// Where the ranks of a group have different parts of a model (experts, tensor parallelism), each
// parameter has its own replicas:
//
//   parallel::Replicate replicas(params, [&](const Param& p) { return p.expert ? few : all; },
//                                owners, {.average = false});
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/ScalarType.h>

#include "braid/comm/group.h"
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
};

class Replicate final : public Sync {
 public:
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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::parallel
