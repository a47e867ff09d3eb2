// SPDX-License-Identifier: BSD-3-Clause
// Whether all ranks of a group were given the same parameters, and buffers that take the values of
// the first rank.
#pragma once
#include <string>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/param.h"
#include "parallel/replica_groups.h"

namespace braid::parallel {

// All ranks of the group call it. Throws InternalError naming the first difference in name, dtype,
// shape or order. `who`: Replicate or Zero.
void expect_alike(const char* who, const comm::Group& group, const std::vector<Param>& params);
// Each group with the parameters that are summed over it.
void expect_alike(const char* who, ReplicaGroups& groups, const std::vector<Param>& params);

// Buffers on their way from the first rank of each group.
class BufferShare {
 public:
  BufferShare(ReplicaGroups& groups, const std::vector<Param>& buffers);
  void wait();

 private:
  std::vector<comm::Pending> flights_;
};

// Counts in-place changes of a tensor, but not those through Tensor::data(), as torch's SGD makes
// them.
inline uint32_t version_of(const at::Tensor& tensor) {
  const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}
// Another number, if the tensor has other values. Reads all of them; 0 without values.
int64_t print_of(const at::Tensor& tensor);

}  // namespace braid::parallel
