// SPDX-License-Identifier: BSD-3-Clause
// The groups over which the gradients of some parameters are summed, each once, in the order in
// which the parameters name them: the same order on all ranks that have the same parameters.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/param.h"
#include "braid/parallel/sync.h"

namespace braid::parallel {

class ReplicaGroups {
 public:
  explicit ReplicaGroups(ReplicasOf of = {}) : of_(std::move(of)) {}

  size_t number_of(const Param& param);  // groups of the same ranks have one number
  const comm::Group& at(size_t number) const { return all_[number]; }
  const std::vector<comm::Group>& all() const { return all_; }
  size_t talking() const;  // groups of more than one rank

  // What the first rank says; where groups are products of axes, all ranks that are joined by any
  // chain of groups get the same. `like` names the device that the groups can send from.
  std::vector<int64_t> first_rank_says(std::vector<int64_t> numbers, const at::Tensor& like) const;

 private:
  ReplicasOf of_;
  std::vector<comm::Group> all_;
};

inline ReplicasOf one_group(const comm::Group& group) {
  return [group](const Param&) { return group; };
}

}  // namespace braid::parallel
