// SPDX-License-Identifier: BSD-3-Clause
// How long a kernel or a collective takes on a cluster.
//
//   plan::CostModel model(cluster);
//   plan::OpCost cost = model.cost(op);        // cost.seconds, cost.bound
//   double s = model.seconds(message);
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>

#include "braid/memory/operator_log.h"
#include "braid/plan/cluster.h"
#include "braid/plan/layout.h"

namespace braid::plan {

enum class Bound : uint8_t { compute, memory, launch, none };  // none: a view, no kernel
std::string_view to_text(Bound bound);

struct OpCost {
  double seconds = 0;  // on the GPU
  double host = 0;     // that the host needs to start it
  int kernels = 1;
  Bound bound = Bound::memory;
  // Power that it draws at full clock over what the board is given; 0: the cluster does not say.
  double heat = 0;
};

struct CostOptions {
  bool graph = false;  // the step is a CUDA graph
  bool tf32 = false;   // products of fp32 on tensor cores
};

class CostModel {
 public:
  explicit CostModel(Cluster cluster, CostOptions options = {});
  ~CostModel();
  CostModel(CostModel&&) noexcept;
  CostModel& operator=(CostModel&&) noexcept;

  const Cluster& cluster() const;
  OpCost cost(const memory::Operator& op) const;
  // The group's ranks lie on nodes of gpus_per_node each; groups that run on one node at the same
  // time share its links to others. `rank` of the world calls it; -1: a neighbour of the peer.
  double seconds(const Message& message, int rank = -1) const;
  double copy_seconds(int64_t bytes) const;  // between host and GPU, one direction

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// As the step of this run is computed.
CostModel cost_model(const Cluster& cluster, const train::RunOptions& options, int64_t world);

}  // namespace braid::plan
