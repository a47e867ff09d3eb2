// SPDX-License-Identifier: BSD-3-Clause
// GPT-2 with the parameter names, shapes and initial values of the transformers package.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/kernels/attention.h"
#include "braid/nn/options.h"
#include "nn/gpt_llama.h"
#include "nn/module_model.h"

namespace braid::nn {
namespace {

constexpr double gpt_std = 0.02;

// Weights are stored [in, out]; those that write into the residual stream start smaller the deeper
// the model.
LinearOptions gpt_linear(double std = gpt_std) {
  return {.stored_in_out = true, .weight = Init::normal(std)};
}

double gpt_residual_std(const GptOptions& o) {
  return gpt_std / std::sqrt(2.0 * static_cast<double>(o.layers));
}

struct GptAttention : Layer {
  GptAttention(Scope where, const GptOptions& o)
      : Layer(std::move(where)),
        c_attn(child<Linear>("c_attn", o.width, 3 * o.width, gpt_linear())),
        c_proj(child<Linear>("c_proj", o.width, o.width, gpt_linear(gpt_residual_std(o)))),
        attn_drop(scope(), "attn_dropout", o.dropout),
        drop(scope(), "resid_dropout", o.dropout),
        heads(o.heads),
        width(o.width) {}

  at::Tensor forward(const at::Tensor& x, const Pass& pass) const {
    const auto here = enter();
    const int64_t batch = x.size(0), tokens = x.size(1);
    const auto qkv = c_attn->forward(x).chunk(3, -1);
    const at::Tensor y = kernels::attention(in_heads(qkv[0]), in_heads(qkv[1]), in_heads(qkv[2]),
                                            {.causal = true, .drop = attn_drop.at(pass)});
    return drop(c_proj->forward(y.transpose(1, 2).reshape({batch, tokens, width})), pass);
  }

  at::Tensor in_heads(const at::Tensor& x) const {  // [batch, heads, tokens, head width]
    return x.view({x.size(0), x.size(1), heads, width / heads}).transpose(1, 2);
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    const double n = static_cast<double>(tokens), d = static_cast<double>(width);
    table.push_back(c_attn->row({tokens}));
    table.push_back(row(fmt::format("Attention, {} heads", heads), {tokens, width}, 4 * n * n * d));
    table.push_back(c_proj->row({tokens}));
  }

  std::shared_ptr<Linear> c_attn, c_proj;
  Dropout attn_drop, drop;
  int64_t heads, width;
};

struct GptMlp : Layer {
  GptMlp(Scope where, const GptOptions& o)
      : Layer(std::move(where)),
        c_fc(child<Linear>("c_fc", o.width, 4 * o.width, gpt_linear())),
        c_proj(child<Linear>("c_proj", 4 * o.width, o.width, gpt_linear(gpt_residual_std(o)))),
        drop(scope(), "dropout", o.dropout) {}

  at::Tensor forward(const at::Tensor& x, const Pass& pass) const {
    const auto here = enter();
    return drop(c_proj->forward(at::gelu(c_fc->forward(x), "tanh")), pass);
  }

  std::shared_ptr<Linear> c_fc, c_proj;
  Dropout drop;
};

struct GptBlock : Layer {
  GptBlock(Scope where, const GptOptions& o)
      : Layer(std::move(where)),
        ln_1(child<LayerNorm>("ln_1", o.width, o.eps)),
        attn(child<GptAttention>("attn", o)),
        ln_2(child<LayerNorm>("ln_2", o.width, o.eps)),
        mlp(child<GptMlp>("mlp", o)) {}

  at::Tensor forward(const at::Tensor& x, const Pass& pass) const {
    const auto here = enter();
    const at::Tensor y = x + attn->forward(ln_1->forward(x), pass);
    return y + mlp->forward(ln_2->forward(y), pass);
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    table.push_back(ln_1->row({tokens}));
    attn->rows(table, tokens);
    table.push_back(ln_2->row({tokens}));
    table.push_back(mlp->c_fc->row({tokens}));
    table.push_back(mlp->c_proj->row({tokens}));
  }

  std::shared_ptr<LayerNorm> ln_1;
  std::shared_ptr<GptAttention> attn;
  std::shared_ptr<LayerNorm> ln_2;
  std::shared_ptr<GptMlp> mlp;
};

struct GptBody : Layer {
  GptBody(Scope where, const GptOptions& o)
      : Layer(std::move(where)),
        wte(child<Embedding>("wte", o.vocabulary, o.width, Init::normal(gpt_std))),
        wpe(child<Embedding>("wpe", o.sequence, o.width, Init::normal(gpt_std))),
        h(child<Blocks<GptBlock>>("h", o)),
        ln_f(child<LayerNorm>("ln_f", o.width, o.eps)),
        drop(scope(), "drop", o.dropout) {}

  at::Tensor forward(const at::Tensor& tokens, const Pass& pass) const {
    const auto here = enter();
    const at::Tensor places = at::arange(tokens.size(1), tokens.options().dtype(c10::kLong));
    const at::Tensor x = drop(wte->forward(tokens) + wpe->forward(places), pass);
    return ln_f->forward(h->forward(x, pass, pass));
  }

  std::shared_ptr<Embedding> wte, wpe;
  std::shared_ptr<Blocks<GptBlock>> h;
  std::shared_ptr<LayerNorm> ln_f;
  Dropout drop;
};

struct Gpt : Layer {
  Gpt(Scope where, const GptOptions& o)
      : Layer(std::move(where)), options(o), transformer(child<GptBody>("transformer", o)) {
    const LinearOptions untied = {.bias = false, .weight = Init::normal(gpt_std)};
    if (!o.tied) lm_head = child<Linear>("lm_head", o.width, o.vocabulary, untied);
  }

  // tokens [batch, seq] of an integer dtype -> scores [batch, seq, vocabulary]
  at::Tensor forward(const at::Tensor& tokens, const Pass& pass) const {
    const auto here = enter();
    check_tokens(tokens, options.sequence);
    return token_scores(lm_head.get(), *transformer->wte, transformer->forward(tokens, pass));
  }

  std::vector<std::string> blocks() const { return paths_of(transformer->h->all); }

  std::vector<LayerRow> layers() const {
    std::vector<LayerRow> table = {transformer->wte->row(options.sequence),
                                   transformer->wpe->row(options.sequence)};
    transformer->h->rows(table, options.sequence);
    table.push_back(transformer->ln_f->row({options.sequence}));
    table.push_back(head_row(lm_head.get(), *transformer->wte, options.sequence));
    return table;
  }

  GptOptions options;
  std::shared_ptr<GptBody> transformer;
  std::shared_ptr<Linear> lm_head;  // null if tied
};

}  // namespace

std::unique_ptr<Model> make_gpt(const GptOptions& options, const Build& build) {
  if (options.width % options.heads != 0)
    throw ConfigError({
        .what = fmt::format("model.heads = {} does not divide model.width = {}", options.heads,
                            options.width),
        .why = "a head holds width / heads numbers of a token",
        .fix = "choose model.width as a multiple of model.heads",
    });
  return std::make_unique<ModuleModel<Gpt>>("gpt", std::make_shared<Gpt>(Scope{build}, options));
}

}  // namespace braid::nn
