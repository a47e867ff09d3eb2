// SPDX-License-Identifier: BSD-3-Clause
// Parts of a model whose inner values are computed again in the backward pass instead of kept: who
// does it is a SegmentRunner (memory::Recompute); who must know of it asks recomputing().
//
//   if (!recomputing()) loads[name] = count;   // noted by the first pass, not again by the second
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid {

// Whether this thread now computes again, within a backward pass, what a forward pass computed
// before. The graph made meanwhile is thrown away: no gradient ever comes along it.
bool recomputing();

class RecomputingGuard {
 public:
  RecomputingGuard();
  ~RecomputingGuard();
  RecomputingGuard(const RecomputingGuard&) = delete;
  RecomputingGuard& operator=(const RecomputingGuard&) = delete;
};

enum class SegmentKind : uint8_t {
  blocks,    // one or more whole blocks of a model, one input
  attention  // scores, softmax, dropout and weighted sum alone: q, k, v
};

using SegmentForward = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

class SegmentRunner {
 public:
  virtual ~SegmentRunner() = default;
  // How many of `blocks`, from `first` on, are one segment; at least 1.
  virtual size_t together(const std::vector<std::string>& blocks, size_t first) const = 0;
  // Returns forward(inputs); `forward` may run again later, so it owns what it uses. `name`: of the
  // first block, or of the attention.
  virtual at::Tensor run(SegmentKind kind, const std::string& name,
                         const std::vector<at::Tensor>& inputs, const SegmentForward& forward) = 0;
};

inline at::Tensor run_segment(SegmentRunner* runner, SegmentKind kind, const std::string& name,
                              const std::vector<at::Tensor>& inputs,
                              const SegmentForward& forward) {
  return runner == nullptr ? forward(inputs) : runner->run(kind, name, inputs, forward);
}

}  // namespace braid
