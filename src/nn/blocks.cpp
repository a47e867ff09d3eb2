// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/blocks.h"

#include <utility>

#include "braid/kernels/lanes.h"

namespace braid::nn {
namespace {

at::Tensor one_after_another(BlockRunner* runner, const std::vector<NamedBlock>& blocks,
                             at::Tensor x) {
  Stream stream = {std::move(x)};
  for (const NamedBlock& block : blocks) {
    if (runner == nullptr)
      stream = block.forward(std::move(stream));
    else
      stream = {run_block(
          runner, block.name, stream.sum,
          [forward = block.forward](const at::Tensor& in) { return forward({in}).closed(); })};
  }
  return stream.closed();
}

}  // namespace

at::Tensor Stream::closed() const {
  if (!branch.defined()) return sum;
  if (!branch.keep.defined()) return kernels::add_trimmed(sum, branch.x);
  kernels::Branch wide = branch;  // not rounded before it is added, as in the norm
  wide.x = kernels::trim_last(branch.x, {sum.size(-1), branch.x.size(-1)}, sum.scalar_type());
  return sum.add(wide.value());
}

std::function<Stream(Stream)> closing(BlockForward forward) {
  return
      [forward = std::move(forward)](const Stream& in) -> Stream { return {forward(in.closed())}; };
}

at::Tensor run_blocks(const Pass& pass, const std::vector<NamedBlock>& blocks, at::Tensor x) {
  if (pass.segments == nullptr) return one_after_another(pass.blocks, blocks, std::move(x));
  std::vector<std::string> names;
  for (const NamedBlock& block : blocks) names.push_back(block.name);
  for (size_t i = 0; i < blocks.size();) {
    const size_t end = i + pass.segments->together(names, i);
    const std::vector<NamedBlock> some(blocks.begin() + static_cast<ptrdiff_t>(i),
                                       blocks.begin() + static_cast<ptrdiff_t>(end));
    x = pass.segments->run(SegmentKind::blocks, names[i], {x},
                           [runner = pass.blocks, some](const std::vector<at::Tensor>& in) {
                             return one_after_another(runner, some, in.at(0));
                           });
    i = end;
  }
  return x;
}

}  // namespace braid::nn
