// SPDX-License-Identifier: BSD-3-Clause
// Runs a test body as several ranks: threads of this process, or processes, with Gloo over
// loopback.
//
//   test::on_ranks(4, [&](comm::Group world) {
//     EXPECT_TRUE(test::close(...)) << "rank " << world.rank();
//   });
//
// A failure names its rank and ends the other ranks. Ranks that stand still for 20 s are reported
// with their last collective and their stack, and end the program. The default random generator is
// shared by all threads: a body that draws from it fails; each rank has a generator of its own
// (take a test::Rank instead of a Group).
#pragma once
#include <cstdint>
#include <functional>
#include <type_traits>

#include <ATen/core/Generator.h>

#include "braid/comm/group.h"

namespace braid::test {

struct Rank {
  comm::Group world;
  at::Generator generator;  // seeded with RankOptions::seed + rank
};

struct RankOptions {
  double limit_seconds = 20;
  uint64_t seed = 0;
};

using RankBody = std::function<void(Rank&)>;
void run_threads(int count, const RankBody& body, const RankOptions& options);
void run_processes(int count, const RankBody& body, const RankOptions& options);
inline constexpr int stuck_exit_code = 70;

template <class Body>
RankBody rank_body(Body body) {
  if constexpr (std::is_invocable_v<Body, comm::Group>) {
    return [body](Rank& rank) { body(rank.world); };
  } else {
    return body;
  }
}

template <class Body>
void on_ranks(int count, Body body, RankOptions options = {}) {
  run_threads(count, rank_body(std::move(body)), options);
}

// The same body as processes: the test program starts itself again with the current test alone, and
// what the test does before and after this call is not repeated there by on_ranks and on_processes.
template <class Body>
void on_processes(int count, Body body, RankOptions options = {}) {
  run_processes(count, rank_body(std::move(body)), options);
}

}  // namespace braid::test
