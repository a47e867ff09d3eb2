// SPDX-License-Identifier: BSD-3-Clause
// Parameters of one unit in one run of memory, cut into as many equal slices as there are ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/accelerator.h"
#include "braid/core/param.h"
#include "braid/parallel/zero.h"
#include "parallel/replica_groups.h"

namespace braid::parallel {

struct ZeroMember {
  Param param;           // of the model
  int64_t first = 0;     // its place in the flat
  at::Tensor grad = {};  // part of ZeroFlat::grads, while those are there
  bool ready = false;    // its gradient came in this round
  bool filled = false;
};

// Parameters of one dtype, device and group of replicas, trained all or none.
struct ZeroFlat {
  std::vector<ZeroMember> members;
  comm::Group replicas;
  bool trained = false;
  int64_t elements = 0;  // without padding
  int64_t share = 0;     // elements of a rank: the last ones may be padding, which nobody owns
  int64_t begin = 0;     // of this rank's slice

  at::Tensor whole;          // [ranks * share]; the parameters are views of it
  bool there = false;        // whole has memory
  std::string not_gathered;  // the error of whoever reads a weight without memory
  c10::Storage closed;       // of the parameters meanwhile; none: a dry run, or always there
  at::Tensor shard;          // [share]: a view of whole, or in stage 3 memory of its own
  comm::Pending gather;
  bool on_host = false;             // shard is memory of the host
  std::unique_ptr<Moment> arrival;  // of the shard on the device
  memory::Traffic traffic;

  at::Tensor grads;        // [ranks * share], from the first gradient on
  at::Tensor sent;         // what travels: grads, or a copy in another dtype
  at::Tensor got;          // [share] of the sum of this round
  at::Tensor shard_grads;  // [share] of the sum of all rounds of this step
  at::Tensor host_grads;   // the same, on the host
  comm::Pending sum;
  int rounds = 0;       // whose sums are in shard_grads or on their way there
  bool last = false;    // the round on its way is the last one of the step
  bool summed = false;  // over the replicas, too, or on its way
};

// What a rank holds of one member.
struct ZeroSlice {
  int64_t first = 0;  // element of the parameter
  int64_t begin = 0;  // place in the shard
  int64_t count = 0;  // 0: nothing
};
ZeroSlice slice_of(const ZeroFlat& flat, const ZeroMember& member);

// Flats without memory yet. Each parameter once.
std::vector<ZeroFlat> flats_of(const ZeroUnit& unit, const comm::Group& shard,
                               ReplicaGroups& replicas);

// Takes memory for the slices (resident: for all), fills this rank's and points the parameters at
// it.
void settle(ZeroFlat& flat, bool resident, const ZeroOptions& options);

void start_gather(ZeroFlat& flat, const comm::Group& shard);
void finish_gather(ZeroFlat& flat);
void release_whole(ZeroFlat& flat);  // waits for a gather on its way

void take_grads_memory(ZeroFlat& flat);

}  // namespace braid::parallel
