// SPDX-License-Identifier: BSD-3-Clause
// How ranks find each other: the store, the proof that they are of one job, and who is where.
#pragma once
#include <string>
#include <vector>

#include "braid/comm/store.h"
#include "braid/launch/environment.h"
#include "braid/launch/options.h"
#include "launch/address.h"

namespace braid::launch {

// What a rank tells the others about itself.
struct Seat {
  std::string host = {}, pid = {};
  std::string machine = {};  // the same for all containers and network namespaces of a machine
  std::string network = {};  // the same for processes that share a loopback device
  std::string address = {};
  std::vector<int> cores = {};
};

struct Meeting {
  comm::Store store = comm::Store::in_memory();  // below the job's token
  std::vector<Seat> seats = {};                  // by rank
};

// torchrun's store serves anyone and outlives its ranks: marks it as that of one job. All other
// keys of the job are below a name that only those who know its token can tell.
void mark(const comm::Store& store, const std::string& token);
comm::Store of_job(const comm::Store& store, const std::string& token);

// Said once per job whose ranks have no secret in common.
inline constexpr const char* guessable_token =
    "braid: note: the ranks know each other by the number of their job, which others can guess; "
    "where strangers reach this host or its network, set BRAID_JOB_TOKEN (docs/launch.md)";

// Connects to the store (or serves it), shows the token, waits until all ranks have come.
Meeting meet(const Environment& here, const Options& options);

// The address at which the other ranks reach this one.
std::string best_address(const std::vector<Seat>& seats, const Environment& here,
                         const Options& options);
// This rank's share of the cores that it may use, at least 1.
int share_of_cores(const std::vector<Seat>& seats, int rank);

}  // namespace braid::launch
