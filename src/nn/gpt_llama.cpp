// SPDX-License-Identifier: BSD-3-Clause
#include "nn/gpt_llama.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "braid/comm/differentiable.h"
#include "braid/core/error.h"
#include "braid/kernels/attention.h"

namespace braid::nn {
namespace {

parallel::TokenShare share_of_tokens(int64_t tokens, const Layout& layout) {
  if (layout.context.size() == 1) return {.tokens = tokens, .by_rank = {{{0, tokens}}}, .rank = 0};
  return parallel::share_tokens(tokens, layout.context, layout.method, /*causal=*/true);
}

int64_t tokens_between(const Layout& layout, const Pass& pass) {
  int64_t count = 0;
  for (const Range& range : tokens_between_splits(layout, pass).ranges) count += range.size();
  return count;
}

}  // namespace

void check_tokens(const at::Tensor& tokens, int64_t longest) {
  if (tokens.dim() != 2 || !c10::isIntegralType(tokens.scalar_type(), false))
    throw DataError({
        .what = fmt::format("the input has shape [{}] and dtype {}",
                            fmt::join(tokens.sizes(), ", "), c10::toString(tokens.scalar_type())),
        .why = "a language model reads token numbers: integers of shape [batch, sequence]",
        .fix = "give int64 tokens, for example from data.source = tokens",
    });
  if (tokens.size(1) > longest)
    throw DataError({
        .what = fmt::format("the input has {} tokens a sample, model.sequence is {}",
                            tokens.size(1), longest),
        .why = "positions beyond model.sequence have no meaning to the model",
        .fix = fmt::format("set model.sequence to {} or shorten the samples", tokens.size(1)),
    });
}

void check_heads(int64_t heads, const Layout& layout) {
  const int ranks = layout.tensor.size();
  if (heads % ranks == 0) return;
  throw ConfigError({
      .what = fmt::format("model.heads = {} cannot be split over mesh.tensor = {}", heads, ranks),
      .why = "each rank of tensor computes the same number of heads",
      .fix = "choose mesh.tensor as a divisor of model.heads",
  });
}

Pass with_tokens(const Pass& pass, int64_t tokens, const Layout& layout) {
  Pass with = pass;
  with.tokens = share_of_tokens(tokens, layout);
  return with;
}

Pass with_tokens_of(const Pass& pass, const at::Tensor& x, int64_t usual, const Layout& layout) {
  if (pass.tokens.tokens > 0) return with_tokens(pass, pass.tokens.tokens, layout);
  Pass with = with_tokens(pass, usual, layout);
  if (tokens_between(layout, with) == x.size(1)) return with;
  const int64_t sharers = layout.sequence ? layout.tensor.size() : 1;
  const int64_t ranks = sharers * layout.context.size();
  return with_tokens(pass, x.size(1) * ranks, layout);
}

at::Tensor own_places(const Layout& layout, const Pass& pass, c10::Device device) {
  const auto options = at::TensorOptions().dtype(c10::kLong).device(device);
  std::vector<at::Tensor> places;
  for (const Range& range : tokens_between_splits(layout, pass).ranges)
    places.push_back(at::arange(range.begin, range.end, options));
  if (places.empty()) return at::arange(0, options);
  return places.size() == 1 ? places[0] : at::cat(places);
}

at::Tensor own_tokens(const at::Tensor& x, const Layout& layout) {
  if (layout.context.size() == 1) return x;
  return parallel::take_tokens(x, share_of_tokens(x.size(1), layout), 1);
}

at::Tensor token_attention(const Layer& layer, const std::vector<at::Tensor>& qkv, const Pass& pass,
                           kernels::Drop drop) {
  const Layout& layout = layer.scope().build.layout;
  const parallel::ContextAttentionOptions options = {
      .attention = {.causal = true, .drop = std::move(drop)}, .method = layout.method};
  return run_segment(
      pass.segments, SegmentKind::attention, layer.path(), qkv,
      [options, share = pass.tokens, context = layout.context](const std::vector<at::Tensor>& in) {
        return parallel::context_attention(in.at(0), in.at(1), in.at(2), share, context, options);
      });
}

at::Tensor join_scores(const at::Tensor& scores, const Layout& layout, int64_t vocabulary,
                       int64_t usual) {
  at::Tensor whole = comm::gather_from(scores, layout.tensor, -1,
                                       comm::even_shares(vocabulary, layout.tensor.size()));
  if (layout.context.size() == 1) return whole;
  parallel::TokenShare share = share_of_tokens(usual, layout);
  if (share.count() != whole.size(1))
    share = share_of_tokens(whole.size(1) * layout.context.size(), layout);
  return parallel::join_tokens(whole, share, layout.context, 1);
}

LayerRow head_row(const Linear* head, const Embedding& embedding, int64_t tokens) {
  if (head != nullptr) return head->row({tokens});
  const int64_t vocabulary = embedding.entries(), width = embedding.weight.size(1);
  const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(width) *
                       static_cast<double>(vocabulary);
  return {.name = "lm_head",
          .kind = fmt::format("Linear {} -> {}, tied", width, vocabulary),
          .output = {1, tokens, vocabulary},
          .parameters = 0,
          .flops = flops};
}

}  // namespace braid::nn
