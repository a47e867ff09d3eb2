// SPDX-License-Identifier: BSD-3-Clause
// The stack of blocks of a model, run one after the other through whoever stands around them: the
// one that gathers weights (Pass::blocks) around each, the one that computes again
// (Pass::segments) around one or several.
//
//   return run_blocks(pass, {{"blocks.0", [block, pass](const at::Tensor& in) {
//                               return block->forward(in, pass);
//                             }}}, x);
#pragma once
#include <string>
#include <vector>

#include "braid/nn/model.h"

namespace braid::nn {

struct NamedBlock {
  std::string name;
  BlockForward forward;  // owns what it uses: it may run again after this call
};

at::Tensor run_blocks(const Pass& pass, const std::vector<NamedBlock>& blocks, at::Tensor x);

}  // namespace braid::nn
