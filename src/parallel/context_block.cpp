// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/context_block.h"

#include <ATen/core/custom_class.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "parallel/context_kernel.h"

namespace braid::parallel {
namespace {

c10::ScalarType sum_dtype(const at::Tensor& x) {
  return x.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat;
}

at::Tensor token_rows(const at::Tensor& x, Range tokens) {
  return x.narrow(2, tokens.begin, tokens.size());
}

// Dropout of the block's weights, by the positions of its queries and keys.
kernels::AttentionOptions block_options(const AttentionBlock& block, const BlockHow& how) {
  kernels::AttentionOptions result = how.options;
  result.causal = block.causal;
  if (how.options.drop.rate == 0) return result;
  auto& windows = result.drop.windows;
  windows.push_back({2, how.tokens, ranges_within(how.queries, block.queries)});
  windows.push_back({3, how.tokens, ranges_within(how.keys, block.keys)});
  return result;
}

// Keys that stand before `position`.
int64_t keys_before(const std::vector<Range>& keys, int64_t position) {
  int64_t count = 0;
  for (const Range& range : keys)
    count += std::clamp<int64_t>(position - range.begin, 0, range.size());
  return count;
}

}  // namespace

int64_t tokens_in(const std::vector<Range>& ranges) {
  int64_t count = 0;
  for (const Range& range : ranges) count += range.size();
  return count;
}

std::vector<Range> ranges_within(const std::vector<Range>& ranges, Range part) {
  std::vector<Range> result;
  int64_t first = 0;  // of the range at hand, in the order of the tensor
  for (const Range& range : ranges) {
    const int64_t begin = std::max(part.begin - first, int64_t{0});
    const int64_t end = std::min(part.end - first, range.size());
    if (begin < end) result.push_back({range.begin + begin, range.begin + end});
    first += range.size();
  }
  return result;
}

std::vector<AttentionBlock> seen_blocks(const std::vector<Range>& queries,
                                        const std::vector<Range>& keys, bool causal) {
  const Range all = {0, tokens_in(queries)};
  if (!causal || queries == keys) return {{all, {0, tokens_in(keys)}, causal}};
  std::vector<AttentionBlock> blocks;
  int64_t first = 0;
  for (const Range& range : queries) {
    const Range mine = {first, first + range.size()}, seen = {0, keys_before(keys, range.begin)};
    first = mine.end;
    if (seen.size() == 0) continue;
    if (!blocks.empty() && blocks.back().keys == seen && blocks.back().queries.end == mine.begin)
      blocks.back().queries.end = mine.end;
    else
      blocks.push_back({mine, seen});
  }
  return blocks;
}

std::vector<AttentionBlock> joined_blocks(std::vector<AttentionBlock> blocks) {
  std::vector<AttentionBlock> joined;
  for (const AttentionBlock& block : blocks) {
    const auto before = std::find_if(joined.begin(), joined.end(), [&](const auto& other) {
      return !other.causal && !block.causal && other.queries == block.queries &&
             other.keys.end == block.keys.begin;
    });
    if (before == joined.end())
      joined.push_back(block);
    else
      before->keys.end = block.keys.end;
  }
  return joined;
}

void BlockSum::add(const AttentionBlock& block, const at::Tensor& q, const at::Tensor& k,
                   const at::Tensor& v, const BlockHow& how) {
  const auto [part, part_lse] =
      attend_block(token_rows(q, block.queries), token_rows(k, block.keys),
                   token_rows(v, block.keys), block_options(block, how));
  if (!out.defined()) {
    out = part.to(sum_dtype(q));
    lse = part_lse;
    return;
  }
  const at::Tensor old = lse.narrow(2, block.queries.begin, block.queries.size());
  const at::Tensor total = at::logaddexp(old, part_lse);
  token_rows(out, block.queries)
      .mul_(old.sub(total).exp_().unsqueeze(-1))
      .addcmul_(part.to(out.scalar_type()), part_lse.sub(total).exp_().unsqueeze(-1));
  old.copy_(total);
}

at::Tensor zeros_for_sum(const at::Tensor& like) {
  return at::zeros(like.sizes(), like.options().dtype(sum_dtype(like)));
}

void add_block_grads(BlockGrads& sums, const AttentionBlock& block, const BlockSaved& saved,
                     const at::Tensor& k, const at::Tensor& v, const BlockHow& how) {
  const KernelSaved part = {token_rows(saved.grad_out, block.queries),
                            token_rows(saved.q, block.queries),
                            token_rows(k, block.keys),
                            token_rows(v, block.keys),
                            token_rows(saved.out, block.queries),
                            saved.lse.narrow(2, block.queries.begin, block.queries.size())};
  const auto [dq, dk, dv] = attend_block_backward(part, block_options(block, how));
  token_rows(sums.q, block.queries).add_(dq);
  token_rows(sums.k, block.keys).add_(dk);
  token_rows(sums.v, block.keys).add_(dv);
}

namespace {

struct HeldBlocks : torch::CustomClassHolder {
  HeldBlocks(std::vector<AttentionBlock> given, BlockHow given_how)
      : blocks(std::move(given)), how(std::move(given_how)) {}
  std::vector<AttentionBlock> blocks;
  BlockHow how;
};

struct ByBlocks : torch::autograd::Function<ByBlocks> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            const std::vector<AttentionBlock>& blocks, const BlockHow& how) {
    BlockSum sum;
    for (const AttentionBlock& block : blocks) sum.add(block, q, k, v, how);
    const at::Tensor out = sum.out.to(q.scalar_type());
    // Not the result itself: where the saving is broken off, it would hold its own graph.
    context->save_for_backward({q, k, v, out.detach(), sum.lse});
    context->saved_data["blocks"] =
        c10::IValue::make_capsule(c10::make_intrusive<HeldBlocks>(blocks, how));
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const auto held = context->saved_data["blocks"].toCapsule();
    const auto* work = static_cast<HeldBlocks*>(held.get());
    BlockGrads sums = {zeros_for_sum(q), zeros_for_sum(k), zeros_for_sum(v)};
    for (const AttentionBlock& block : work->blocks)
      add_block_grads(sums, block, {grads[0], q, saved[3], saved[4]}, k, v, work->how);
    const auto dtype = q.scalar_type();
    return {sums.q.to(dtype), sums.k.to(dtype), sums.v.to(dtype), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor attention_by_blocks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const std::vector<AttentionBlock>& blocks, const BlockHow& how) {
  return ByBlocks::apply(q, k, v, blocks, how);
}

}  // namespace braid::parallel
