// SPDX-License-Identifier: BSD-3-Clause
// What GPT and Llama share: the check of their input, the stack of blocks, the two ends (token
// embedding and scores, which may be one weight), and how all of it is spread over ranks.
//
//   using Gpt = LanguageModel<GptBody, GptOptions>;
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/kernels/head_loss.h"
#include "braid/nn/blocks.h"
#include "braid/nn/layers.h"
#include "braid/nn/model.h"

namespace braid::nn {

void check_tokens(const at::Tensor& tokens,
                  int64_t longest);  // DataError unless integers [batch, seq <= longest]
// ConfigError unless each rank of tensor gets as many heads.
void check_heads(int64_t heads, const Layout& layout);

// The pass of a model whose samples have `tokens` tokens: says which of them are here.
Pass with_tokens(const Pass& pass, int64_t tokens, const Layout& layout);
// The same where only a stage's input x [batch, tokens here, ...] is known: samples have as many
// tokens as the pass says, else `usual` if that fits x, else as many on each rank.
Pass with_tokens_of(const Pass& pass, const at::Tensor& x, int64_t usual, const Layout& layout);
// Places in the sample of the tokens between split regions, int64.
at::Tensor own_places(const Layout& layout, const Pass& pass, c10::Device device);
at::Tensor own_tokens(const at::Tensor& x, const Layout& layout);  // x [batch, all tokens, ...]

// Causal attention of the heads and tokens that `layer` has on this rank; q [batch, heads, tokens,
// head width]. A segment of Pass::segments.
at::Tensor token_attention(const Layer& layer, const std::vector<at::Tensor>& qkv, const Pass& pass,
                           kernels::Drop drop = {});

// Scores of this rank's tokens and entries -> of all.
at::Tensor join_scores(const at::Tensor& scores, const Layout& layout, int64_t vocabulary,
                       int64_t usual);
LayerRow head_row(const Linear* head, const Embedding& embedding, int64_t tokens);

// Blocks named 0, 1, ... one after the other; null where another rank holds the block.
template <class Block>
struct Blocks : Layer {
  template <class Options>
  Blocks(Scope where, const Options& o) : Layer(std::move(where)) {
    for (int64_t i = 0; i < o.layers; ++i)
      all.push_back(layout().holds(i) ? child<Block>(std::to_string(i), o) : nullptr);
  }

  template <class With>  // a Pass, or more
  at::Tensor forward(const at::Tensor& x, const Range& some, const With& with) const {
    std::vector<NamedBlock> named;
    for (int64_t i = some.begin; i < some.end; ++i) {
      const std::shared_ptr<Block> block = all.at(static_cast<size_t>(i));
      named.push_back({block->path(),
                       [block, with](Stream in) { return block->forward(std::move(in), with); }});
    }
    return run_blocks(with, named, x);
  }

  std::vector<std::string> paths() const {  // of all blocks, wherever they are
    std::vector<std::string> paths;
    for (size_t i = 0; i < all.size(); ++i) paths.push_back((scope() / std::to_string(i)).path);
    return paths;
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    for (const auto& block : all) block->rows(table, tokens);
  }

  std::vector<std::shared_ptr<Block>> all;
};

// The token embedding of a body, or the copy of it that the last stage makes scores with, or null.
template <class Body, class Options>
std::shared_ptr<Embedding> token_embedding(Body& body, const std::string& name, const Options& o,
                                           Init init) {
  const Layout& layout = body.scope().build.layout;
  if (layout.holds_first())
    return body.template child<Embedding>(name, o.vocabulary, o.width, init, Split::rows);
  if (!o.tied || !layout.holds(o.layers - 1)) return nullptr;
  Scope copy = body.scope() / name;
  copy.build.dry_params = false;  // nobody else gives it memory
  return std::make_shared<Embedding>(copy, o.vocabulary, o.width, init, Split::rows);
}

// Body: embedding, paths(), embed(tokens, pass), run(x, blocks, pass), last_norm(x),
// rows(table, tokens), name, head_init.
template <class Body, class Options>
struct LanguageModel : Layer {
  LanguageModel(Scope where, const Options& o)
      : Layer(std::move(where)), options(o), body(child<Body>(Body::name, o)) {
    const LinearOptions untied = {.bias = false,
                                  .weight = Init::normal(Body::head_std),
                                  .split = Split::columns,
                                  .fp8 = false};
    if (!o.tied && layout().holds(o.layers - 1))
      lm_head = child<Linear>("lm_head", o.width, o.vocabulary, untied);
  }

  // tokens [batch, seq] of an integer dtype -> scores [batch, seq, vocabulary], or the sum of
  // losses
  at::Tensor forward(const at::Tensor& tokens, const Pass& pass) {
    return stage({0, options.layers}, {tokens}, pass)[0];
  }

  Carry stage(const Range& some, const Carry& carry, const Pass& pass) {
    const auto here = enter();
    const bool first = some.begin == 0, last = some.end == options.layers;
    if (first) check_tokens(carry.at(0), options.sequence);
    const Pass with = first ? with_tokens(pass, carry.at(0).size(1), layout())
                            : with_tokens_of(pass, carry.at(0), options.sequence, layout());
    at::Tensor x =
        first ? body->embed(own_tokens(carry[0], layout()), with).to(stream_dtype()) : carry[0];
    x = body->run(x, some, with);
    if (!last) return {x};
    const at::Tensor y = body->last_norm(x);
    return {with.aim.target.defined() && gives_losses() ? losses(y, with) : scores(y, with)};
  }

  // With all of the vocabulary here, and gradients of weights that come with those of the input.
  bool gives_losses() const {
    return layout().tensor.size() == 1 && layout().later == nullptr && !as_reference();
  }

  at::Tensor losses(const at::Tensor& x, const Pass& pass) const {
    const at::Tensor& weight = lm_head != nullptr ? lm_head->weight : body->embedding->weight;
    return kernels::head_loss(cast(x).flatten(0, 1), weight,
                              own_tokens(pass.aim.target, layout()).flatten(),
                              {.ignored = ignored_target, .scale = pass.aim.scale});
  }

  at::Tensor scores(const at::Tensor& x, const Pass& pass) const {
    if (lm_head != nullptr) return columns(x, pass, {lm_head.get()})[0];
    return parallel::column_linears(cast(x), {{body->embedding->weight}}, split_axis(),
                                    pass.tokens.count())[0];
  }

  std::vector<CarrySpec> carried(const at::Tensor& input) const {
    const Pass with = with_tokens({}, input.size(1), layout());
    int64_t tokens = 0;
    for (const Range& range : tokens_between_splits(layout(), with).ranges) tokens += range.size();
    return {{{input.size(0), tokens, options.width}, stream_dtype()}};
  }

  std::optional<Param> tied() const {
    const bool end = layout().holds_first() || layout().holds(options.layers - 1);
    if (!options.tied || !end) return {};
    Param param = body->embedding->described("weight", body->embedding->weight);
    param.name = body->embedding->path() + ".weight";
    return param;
  }

  at::Tensor local_target(const at::Tensor& target) const { return own_tokens(target, layout()); }
  LossShare loss_share() const {
    return {
        .context = layout().context, .vocabulary = layout().tensor, .scores = options.vocabulary};
  }
  at::Tensor whole_output(const at::Tensor& output) const {
    return join_scores(output, layout(), options.vocabulary, options.sequence);
  }

  std::vector<std::string> blocks() const { return body->paths(); }

  std::vector<LayerRow> layers() const {
    if (!layout().stages.empty()) {  // what is elsewhere has rows, too
      Build whole = scope().build;
      whole.layout = {};
      whole.device = c10::kMeta;
      return LanguageModel(Scope{whole}, options).layers();
    }
    std::vector<LayerRow> table;
    body->rows(table, options.sequence);
    table.push_back(head_row(lm_head.get(), *body->embedding, options.sequence));
    return table;
  }

  Options options;
  std::shared_ptr<Body> body;
  std::shared_ptr<Linear> lm_head;  // null if tied or elsewhere
};

}  // namespace braid::nn
