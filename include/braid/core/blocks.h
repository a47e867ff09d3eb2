// SPDX-License-Identifier: BSD-3-Clause
// Whoever wants to do something around each block of a model (gather its weights, recompute it)
// is a BlockRunner; a model runs its blocks through the one it is given.
//
//   x = run_block(runner, "blocks.3", x, [&](const at::Tensor& in) { return block->forward(in); });
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid {

// What goes from one stage of a model to the next, and what it will look like.
using Carry = std::vector<at::Tensor>;
struct CarrySpec {
  std::vector<int64_t> shape;
  c10::ScalarType dtype = c10::kFloat;
  bool operator==(const CarrySpec&) const = default;
};

using BlockForward = std::function<at::Tensor(const at::Tensor&)>;

class BlockRunner {
 public:
  virtual ~BlockRunner() = default;
  // Returns forward(input). `block` names the parameters it uses: "blocks.3" those of blocks.3.*.
  virtual at::Tensor run(const std::string& block, const at::Tensor& input,
                         const BlockForward& forward) = 0;
};

inline at::Tensor run_block(BlockRunner* runner, const std::string& block, const at::Tensor& input,
                            const BlockForward& forward) {
  return runner == nullptr ? forward(input) : runner->run(block, input, forward);
}

}  // namespace braid
