// SPDX-License-Identifier: BSD-3-Clause
// Llama 3 with the parameter names, shapes and initial values of the transformers package.
#include <utility>

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/kernels/rotary.h"
#include "braid/nn/moe.h"
#include "braid/nn/options.h"
#include "nn/gpt_llama.h"
#include "nn/module_model.h"
#include "nn/reference.h"
#include "nn/rotary.h"

namespace braid::nn {
namespace {

LinearOptions llama_linear(Split split) {
  return {.bias = false, .weight = Init::normal(0.02), .split = split};
}

// A pass of the blocks: with the turns of the positions.
struct LlamaPass : Pass {
  kernels::Turn turn = {};
};

// With fewer heads of keys than ranks of tensor, neighbours hold the same one.
struct LlamaSizes : LlamaOptions {
  comm::Group kv_sharers = {};
};

LlamaSizes sizes_on(const Layout& layout, const LlamaOptions& o) {
  const std::vector<int> ranks = parallel::unit_sharers(o.kv_heads, layout.tensor, 1);
  if (ranks.size() == 1) return {o};
  return {o, layout.tensor.split(ranks, fmt::format("{}.kv{}", layout.tensor.name(), ranks[0]))};
}

// Whole heads.
LinearOptions llama_heads(Split split, int64_t head_width, comm::Group sharers = {}) {
  LinearOptions options = llama_linear(split);
  options.unit = head_width;
  options.sharers = std::move(sharers);
  return options;
}

struct LlamaAttention : Layer {
  LlamaAttention(Scope where, const LlamaSizes& o)
      : Layer(std::move(where)),
        heads(o.heads),
        kv_heads(o.kv_heads),
        head_width(o.width / o.heads),
        q_proj(child<Linear>("q_proj", o.width, o.width, llama_heads(Split::columns, head_width))),
        k_proj(child<Linear>("k_proj", o.width, kv_heads * head_width, kv_options(o))),
        v_proj(child<Linear>("v_proj", o.width, kv_heads * head_width, kv_options(o))),
        o_proj(child<Linear>("o_proj", o.width, o.width, llama_heads(Split::rows, head_width))) {}

  static LinearOptions kv_options(const LlamaSizes& o) {
    return llama_heads(Split::columns, o.width / o.heads, o.kv_sharers);
  }

  at::Tensor forward(const at::Tensor& x, const LlamaPass& pass) const {
    const auto here = enter();
    const auto qkv = columns(x, pass, {q_proj.get(), k_proj.get(), v_proj.get()});
    const auto [q, k] = kernels::rotary(in_heads(qkv[0]), in_heads(qkv[1]), pass.turn);
    const at::Tensor v = in_heads(qkv[2]);
    const at::Tensor mixed =
        token_attention(*this, {q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)}, pass);
    return o_proj->forward(mixed.transpose(1, 2).flatten(2));
  }

  at::Tensor in_heads(const at::Tensor& x) const {  // [batch, tokens, heads, head width]
    return x.view({x.size(0), x.size(1), -1, head_width});
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    const int64_t width = heads * head_width;
    const double n = static_cast<double>(tokens), d = static_cast<double>(width);
    for (const auto& linear : {q_proj, k_proj, v_proj}) table.push_back(linear->row({tokens}));
    table.push_back(row(fmt::format("Attention, {} heads, {} of keys", heads, kv_heads),
                        {tokens, width}, 4 * n * n * d));
    table.push_back(o_proj->row({tokens}));
  }

  int64_t heads, kv_heads, head_width;
  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj;
};

struct LlamaMlp : Layer {
  LlamaMlp(Scope where, const LlamaOptions& o)
      : Layer(std::move(where)),
        gate_proj(child<Linear>("gate_proj", o.width, o.hidden, llama_linear(Split::columns))),
        up_proj(child<Linear>("up_proj", o.width, o.hidden, llama_linear(Split::columns))),
        down_proj(child<Linear>("down_proj", o.hidden, o.width, llama_linear(Split::rows))) {}

  at::Tensor forward(const at::Tensor& x, const Pass& pass) const {
    const auto here = enter();
    const auto wide = columns(x, pass, {gate_proj.get(), up_proj.get()});
    return down_proj->forward({kernels::Activation::swiglu, wide[0], wide[1]});
  }

  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;
};

MixtureOptions llama_mixture(const LlamaOptions& o) {
  return {.width = o.width, .hidden = o.hidden, .gated = true};
}

struct LlamaBlock : Layer {
  LlamaBlock(Scope where, const LlamaSizes& o)
      : Layer(std::move(where)),
        self_attn(child<LlamaAttention>("self_attn", o)),
        mlp(o.moe.in_block(block_number(path())) ? nullptr : child<LlamaMlp>("mlp", o)),
        moe(mlp == nullptr ? child<Mixture>("mlp", o.moe, llama_mixture(o)) : nullptr),
        input_layernorm(child<RmsNorm>("input_layernorm", o.width, o.eps)),
        post_attention_layernorm(child<RmsNorm>("post_attention_layernorm", o.width, o.eps)) {}

  Stream forward(Stream in, const LlamaPass& pass) const {
    const auto here = enter();
    NormedSum first = input_layernorm->add(in.sum, std::move(in.branch));
    in = {};
    at::Tensor attended = self_attn->forward(std::exchange(first.y, {}), pass);
    NormedSum second = post_attention_layernorm->add(first.sum, std::move(attended));
    first = {};
    const at::Tensor z = std::exchange(second.y, {});
    return {second.sum, moe != nullptr ? moe->forward(z, pass) : mlp->forward(z, pass)};
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    table.push_back(input_layernorm->row({tokens}));
    self_attn->rows(table, tokens);
    table.push_back(post_attention_layernorm->row({tokens}));
    if (moe != nullptr) return moe->rows(table, tokens);
    for (const auto& linear : {mlp->gate_proj, mlp->up_proj, mlp->down_proj})
      table.push_back(linear->row({tokens}));
  }

  std::shared_ptr<LlamaAttention> self_attn;
  std::shared_ptr<LlamaMlp> mlp;  // null where a mixture stands
  std::shared_ptr<Mixture> moe;   // null where none does
  std::shared_ptr<RmsNorm> input_layernorm, post_attention_layernorm;
};

struct LlamaBody : Layer {
  static constexpr const char* name = "model";
  static constexpr double head_std = 0.02;

  LlamaBody(Scope where, const LlamaOptions& o)
      : Layer(std::move(where)),
        embedding(token_embedding(*this, "embed_tokens", o, Init::normal(0.02))),
        layers(child<Blocks<LlamaBlock>>("layers", sizes_on(layout(), o))),
        tables(o) {
    if (layout().holds(o.layers - 1)) norm = child<RmsNorm>("norm", o.width, o.eps);
  }

  at::Tensor embed(const at::Tensor& tokens, const Pass&) const {
    const auto here = enter();
    return embedding->forward(tokens);
  }

  at::Tensor run(const at::Tensor& x, const Range& some, const Pass& pass) {
    const auto here = enter();
    const auto dtype = compute() == c10::kDouble ? c10::kDouble : c10::kFloat;
    LlamaPass with = {pass, tables.at(pass.tokens.tokens, x.device(), dtype)};
    if (layout().context.size() > 1) {
      with.turn.cos = parallel::take_tokens(with.turn.cos, pass.tokens, 0);
      with.turn.sin = parallel::take_tokens(with.turn.sin, pass.tokens, 0);
    }
    return layers->forward(x, some, with);
  }

  at::Tensor last_norm(const at::Tensor& x) const {
    const auto here = enter();
    return norm->forward(x);
  }

  std::vector<std::string> paths() const { return layers->paths(); }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    table.push_back(embedding->row(tokens));
    layers->rows(table, tokens);
    table.push_back(norm->row({tokens}));
  }

  std::shared_ptr<Embedding> embedding;
  std::shared_ptr<Blocks<LlamaBlock>> layers;
  std::shared_ptr<RmsNorm> norm;
  RotaryTables tables;
};

using Llama = LanguageModel<LlamaBody, LlamaOptions>;

void check_llama(const LlamaOptions& o) {
  if (o.width % (2 * o.heads) != 0)
    throw ConfigError({
        .what = fmt::format("model.width = {} over model.heads = {} is not an even number", o.width,
                            o.heads),
        .why = "rotary positions turn the numbers of a head in pairs",
        .fix = fmt::format("choose model.width as a multiple of {}", 2 * o.heads),
    });
  if (o.heads % o.kv_heads != 0)
    throw ConfigError({
        .what = fmt::format("model.kv_heads = {} does not divide model.heads = {}", o.kv_heads,
                            o.heads),
        .why = "each head of keys and values serves the same number of query heads",
        .fix = "choose model.heads as a multiple of model.kv_heads",
    });
  if (o.rope_factor != 1 && o.rope_high <= o.rope_low)
    throw ConfigError({
        .what = fmt::format("model.rope_high = {} is not above model.rope_low = {}", o.rope_high,
                            o.rope_low),
        .why = "between the two the scaling of frequencies fades in",
        .fix =
            "set model.rope_low: 1 and model.rope_high: 4 as in Llama 3, or model.rope_factor: 1",
    });
}

}  // namespace

std::unique_ptr<Model> make_llama(const LlamaOptions& options, const Build& build) {
  check_reference("llama", build);
  check_llama(options);
  check_heads(options.heads, build.layout);
  const int64_t ranks = build.layout.tensor.size();
  if (options.kv_heads % ranks != 0 && ranks % options.kv_heads != 0)
    throw ConfigError({
        .what = fmt::format("model.kv_heads = {} cannot be split over mesh.tensor = {}",
                            options.kv_heads, ranks),
        .why = "a rank holds whole heads of keys, or shares one with the same number of ranks",
        .fix = "choose mesh.tensor as a divisor or a multiple of model.kv_heads",
    });
  return std::make_unique<ModuleModel<Llama>>("llama",
                                              std::make_shared<Llama>(Scope{build}, options));
}

}  // namespace braid::nn
