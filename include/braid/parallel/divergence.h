// SPDX-License-Identifier: BSD-3-Clause
// Replicas must hold the same weights, bit for bit: a checksum of all of them is compared every so
// many steps.
//
//   parallel::Divergence same(sync.params(), replicas, {.every = 100});
//   same.step(step);   // after the update; throws CommError if a rank has gone its own way:
//   // replicas differ at step 40: blocks.3.mlp.fc1.weight on rank 2 is not what ranks 0, 1, 3 have
//
// A check costs one pass over the weights and one message of 16 bytes a group; only if that
// differs, a second one says which parameter it is.
//
// Under tensor or expert parallelism the ranks that hold the same elements differ from parameter to
// parameter: those without cuts are the same on all ranks of the tensor axis, too, experts not on
// those of the expert axis.
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"
#include "braid/core/options.h"
#include "braid/core/param.h"
#include "braid/parallel/sync.h"

namespace braid::parallel {

struct DivergenceOptions {
  int64_t every = 100;  // 0: never
  bool operator==(const DivergenceOptions&) const = default;
};
void describe(Fields& fields, DivergenceOptions& options);

class Divergence {
 public:
  // Whole parameters or pieces: the same ones on all ranks of the group, in the same order.
  Divergence(std::vector<Param> params, comm::Group replicas, DivergenceOptions options = {});
  // Each with the ranks that hold the same elements of it; ranks of a group have parameters of the
  // same names in the same order.
  Divergence(std::vector<Param> params, const ReplicasOf& replicas, DivergenceOptions options = {});

  // All ranks of all groups call it, after the update of each step; steps count from 1.
  void step(int64_t step);
  // Now, whatever the step.
  void check(int64_t step);

 private:
  struct Alike {  // parameters that the ranks of one group share
    comm::Group replicas;
    std::vector<Param> params;
  };
  [[noreturn]] void report(const Alike& part, const at::Tensor& sums, int64_t step) const;

  std::vector<Alike> parts_;
  DivergenceOptions options_;
  int64_t agreed_ = -1;  // the last step at which they did
};

// One 64-bit number for each parameter, on the device of the parameters (they share one); every bit
// and its place count. Equal bits give equal numbers on one kind of device. No host read on a GPU.
at::Tensor checksums(const std::vector<Param>& params);  // int64 [parameters]

}  // namespace braid::parallel
