// SPDX-License-Identifier: BSD-3-Clause
// Llama 3 with the parameter names, shapes and initial values of the transformers package.
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/kernels/attention.h"
#include "braid/kernels/rotary.h"
#include "braid/kernels/swiglu.h"
#include "braid/nn/options.h"
#include "nn/gpt_llama.h"
#include "nn/module_model.h"
#include "nn/rotary.h"

namespace braid::nn {
namespace {

LinearOptions llama_linear() { return {.bias = false, .weight = Init::normal(0.02)}; }

struct LlamaAttention : Layer {
  LlamaAttention(Scope where, const LlamaOptions& o)
      : Layer(std::move(where)),
        heads(o.heads),
        kv_heads(o.kv_heads),
        head_width(o.width / o.heads),
        q_proj(child<Linear>("q_proj", o.width, o.width, llama_linear())),
        k_proj(child<Linear>("k_proj", o.width, kv_heads * head_width, llama_linear())),
        v_proj(child<Linear>("v_proj", o.width, kv_heads * head_width, llama_linear())),
        o_proj(child<Linear>("o_proj", o.width, o.width, llama_linear())) {}

  at::Tensor forward(const at::Tensor& x, const RotaryTables::Tables& turn) const {
    const auto here = enter();
    const at::Tensor y = cast(x);  // once for the three projections
    const at::Tensor q = kernels::rotary(in_heads(q_proj->forward(y), heads), turn.cos, turn.sin);
    const at::Tensor k =
        kernels::rotary(in_heads(k_proj->forward(y), kv_heads), turn.cos, turn.sin);
    const at::Tensor v = in_heads(v_proj->forward(y), kv_heads);
    const at::Tensor mixed = kernels::attention(q.transpose(1, 2), k.transpose(1, 2),
                                                v.transpose(1, 2), {.causal = true});
    return o_proj->forward(mixed.transpose(1, 2).reshape(x.sizes()));
  }

  at::Tensor in_heads(const at::Tensor& x,
                      int64_t count) const {  // [batch, tokens, heads, head width]
    return x.view({x.size(0), x.size(1), count, head_width});
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
        gate_proj(child<Linear>("gate_proj", o.width, o.hidden, llama_linear())),
        up_proj(child<Linear>("up_proj", o.width, o.hidden, llama_linear())),
        down_proj(child<Linear>("down_proj", o.hidden, o.width, llama_linear())) {}

  at::Tensor forward(const at::Tensor& x) const {
    const auto here = enter();
    const at::Tensor y = cast(x);
    return down_proj->forward(kernels::swiglu(gate_proj->forward(y), up_proj->forward(y)));
  }

  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;
};

struct LlamaBlock : Layer {
  LlamaBlock(Scope where, const LlamaOptions& o)
      : Layer(std::move(where)),
        self_attn(child<LlamaAttention>("self_attn", o)),
        mlp(child<LlamaMlp>("mlp", o)),
        input_layernorm(child<RmsNorm>("input_layernorm", o.width, o.eps)),
        post_attention_layernorm(child<RmsNorm>("post_attention_layernorm", o.width, o.eps)) {}

  at::Tensor forward(const at::Tensor& x, const RotaryTables::Tables& turn) const {
    const auto here = enter();
    const at::Tensor y = x + self_attn->forward(input_layernorm->forward(x), turn);
    return y + mlp->forward(post_attention_layernorm->forward(y));
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    table.push_back(input_layernorm->row({tokens}));
    self_attn->rows(table, tokens);
    table.push_back(post_attention_layernorm->row({tokens}));
    for (const auto& linear : {mlp->gate_proj, mlp->up_proj, mlp->down_proj})
      table.push_back(linear->row({tokens}));
  }

  std::shared_ptr<LlamaAttention> self_attn;
  std::shared_ptr<LlamaMlp> mlp;
  std::shared_ptr<RmsNorm> input_layernorm, post_attention_layernorm;
};

struct LlamaBody : Layer {
  LlamaBody(Scope where, const LlamaOptions& o)
      : Layer(std::move(where)),
        embed_tokens(child<Embedding>("embed_tokens", o.vocabulary, o.width, Init::normal(0.02))),
        layers(child<Blocks<LlamaBlock>>("layers", o)),
        norm(child<RmsNorm>("norm", o.width, o.eps)),
        tables(o) {}

  at::Tensor forward(const at::Tensor& tokens, const Pass& pass) {
    const auto here = enter();
    const at::Tensor x = embed_tokens->forward(tokens);
    const auto dtype = compute() == c10::kDouble ? c10::kDouble : c10::kFloat;
    const auto& turn = tables.at(tokens.size(1), x.device(), dtype);
    return norm->forward(layers->forward(x, pass, turn));
  }

  std::shared_ptr<Embedding> embed_tokens;
  std::shared_ptr<Blocks<LlamaBlock>> layers;
  std::shared_ptr<RmsNorm> norm;
  RotaryTables tables;
};

struct Llama : Layer {
  Llama(Scope where, const LlamaOptions& o)
      : Layer(std::move(where)), options(o), model(child<LlamaBody>("model", o)) {
    if (!o.tied) lm_head = child<Linear>("lm_head", o.width, o.vocabulary, llama_linear());
  }

  // tokens [batch, seq] of an integer dtype -> scores [batch, seq, vocabulary]
  at::Tensor forward(const at::Tensor& tokens, const Pass& pass) {
    const auto here = enter();
    check_tokens(tokens, options.sequence);
    return token_scores(lm_head.get(), *model->embed_tokens, model->forward(tokens, pass));
  }

  std::vector<std::string> blocks() const { return paths_of(model->layers->all); }

  std::vector<LayerRow> layers() const {
    std::vector<LayerRow> table = {model->embed_tokens->row(options.sequence)};
    model->layers->rows(table, options.sequence);
    table.push_back(model->norm->row({options.sequence}));
    table.push_back(head_row(lm_head.get(), *model->embed_tokens, options.sequence));
    return table;
  }

  LlamaOptions options;
  std::shared_ptr<LlamaBody> model;
  std::shared_ptr<Linear> lm_head;  // null if tied
};

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
  check_llama(options);
  return std::make_unique<ModuleModel<Llama>>("llama",
                                              std::make_shared<Llama>(Scope{build}, options));
}

}  // namespace braid::nn
