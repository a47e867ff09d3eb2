// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/replica_groups.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "braid/core/dry.h"

namespace braid::parallel {

size_t ReplicaGroups::number_of(const Param& param) {
  const comm::Group group = of_ ? of_(param) : comm::Group();
  const auto same = [&](const comm::Group& other) {
    return other.size() == group.size() && (group.size() == 1 || other.ranks() == group.ranks());
  };
  const auto found = std::find_if(all_.begin(), all_.end(), same);
  if (found != all_.end()) return static_cast<size_t>(found - all_.begin());
  all_.push_back(group);
  return all_.size() - 1;
}

size_t ReplicaGroups::talking() const {
  return static_cast<size_t>(std::count_if(
      all_.begin(), all_.end(), [](const comm::Group& group) { return group.size() > 1; }));
}

std::vector<int64_t> ReplicaGroups::first_rank_says(std::vector<int64_t> numbers,
                                                    const at::Tensor& like) const {
  if (talking() == 0) return numbers;
  const at::Tensor mine = at::empty({static_cast<int64_t>(numbers.size())}, c10::kLong);
  if (has_data(mine)) std::copy(numbers.begin(), numbers.end(), mine.mutable_data_ptr<int64_t>());
  const at::Tensor told = mine.to(like.device());
  for (const comm::Group& group : all_) group.broadcast(told, 0).wait();
  if (!has_data(told)) return numbers;
  const at::Tensor host = told.cpu();
  const int64_t* first = host.const_data_ptr<int64_t>();
  return {first, first + host.numel()};
}

}  // namespace braid::parallel
