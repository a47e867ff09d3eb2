// SPDX-License-Identifier: BSD-3-Clause
// Collectives by latency and bandwidth: ring or tree, within a node and between nodes.
#pragma once
#include "braid/plan/cluster.h"
#include "braid/plan/layout.h"

namespace braid::plan {

// Where the ranks of a group lie.
struct Spread {
  double ranks = 1, nodes = 1;
  double each() const { return ranks / nodes; }  // ranks of the group on a node
};
Spread spread_of(const std::vector<int>& ranks, int64_t gpus_per_node);

// `rank` of the world sends; -1: one that stands beside the peer in the group.
double message_seconds(const Cluster& cluster, const Message& message, int rank = -1);

}  // namespace braid::plan
