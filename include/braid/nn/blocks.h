// SPDX-License-Identifier: BSD-3-Clause
// The stack of blocks of a model, run one after the other through whoever stands around them: the
// one that gathers weights (Pass::blocks) around each, the one that computes again
// (Pass::segments) around one or several.
//
//   return nn::run_blocks(pass, {{"blocks.0", [block, pass](nn::Stream in) {
//                               return block->forward(std::move(in), pass);
//                             }}}, x);
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "braid/kernels/dropout.h"
#include "braid/nn/model.h"

namespace braid::nn {

// What runs along the blocks: the sum of all branches so far, and the last one, which the norm that
// the next block begins with adds in the same pass over memory (nn::Norm::add).
struct Stream {
  at::Tensor sum;
  kernels::Branch branch = {};  // undefined: is in the sum already
  at::Tensor closed() const;
};

struct NamedBlock {
  std::string name;
  std::function<Stream(Stream)> forward;  // owns what it uses: it may run again after this call
};
// Of a block that adds by itself.
std::function<Stream(Stream)> closing(BlockForward forward);

// What is handed from one block to the next is open only where nothing stands between them.
at::Tensor run_blocks(const Pass& pass, const std::vector<NamedBlock>& blocks, at::Tensor x);

}  // namespace braid::nn
