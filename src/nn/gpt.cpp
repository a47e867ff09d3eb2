// SPDX-License-Identifier: BSD-3-Clause
// GPT-2 with the parameter names, shapes and initial values of the transformers package.
#include <cmath>

#include <utility>

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/kernels/parts.h"
#include "braid/nn/moe.h"
#include "braid/nn/options.h"
#include "nn/gpt_llama.h"
#include "nn/module_model.h"
#include "nn/reference.h"

namespace braid::nn {
namespace {

constexpr double gpt_std = 0.02;

// Weights are stored [in, out]; those that write into the residual stream start smaller the deeper
// the model.
LinearOptions gpt_linear(Split split, double std = gpt_std) {
  return {.stored_in_out = true, .weight = Init::normal(std), .split = split};
}

// Whole heads of q, k and v, which stand in one weight.
LinearOptions gpt_heads(const GptOptions& o) {
  LinearOptions options = gpt_linear(Split::columns);
  options.unit = o.width / o.heads;
  options.parts = 3;
  return options;
}

double gpt_residual_std(const GptOptions& o) {
  return gpt_std / std::sqrt(2.0 * static_cast<double>(o.layers));
}

struct GptAttention : Layer {
  GptAttention(Scope where, const GptOptions& o)
      : Layer(std::move(where)),
        c_attn(child<Linear>("c_attn", o.width, 3 * o.width, gpt_heads(o))),
        c_proj(child<Linear>("c_proj", o.width, o.width,
                             gpt_linear(Split::rows, gpt_residual_std(o)))),
        attn_drop(scope(), "attn_dropout", o.dropout),
        drop(scope(), "resid_dropout", o.dropout),
        heads(o.heads),
        head_width(o.width / o.heads) {}

  at::Tensor forward(const at::Tensor& x, const Pass& pass) const {
    const auto here = enter();
    const auto qkv = kernels::parts(columns(x, pass, {c_attn.get()})[0], 3);
    const at::Tensor y = token_attention(
        *this, {in_heads(qkv[0]), in_heads(qkv[1]), in_heads(qkv[2])}, pass, weights_drop(pass));
    return drop(c_proj->forward(y.transpose(1, 2).flatten(2)), pass);
  }

  at::Tensor in_heads(const at::Tensor& x) const {  // [batch, heads, tokens, head width]
    return x.view({x.size(0), x.size(1), -1, head_width}).transpose(1, 2);
  }

  kernels::Drop weights_drop(const Pass& pass) const {
    kernels::Drop of_weights = attn_drop.at(pass);
    const Range& q = c_attn->held()[0];
    const Range here = {q.begin / head_width, q.end / head_width};
    if (layout().tensor.size() > 1 && of_weights.rate > 0)
      of_weights.windows.push_back({1, heads, {here}});
    return of_weights;
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    const int64_t width = heads * head_width;
    const double n = static_cast<double>(tokens), d = static_cast<double>(width);
    table.push_back(c_attn->row({tokens}));
    table.push_back(row(fmt::format("Attention, {} heads", heads), {tokens, width}, 4 * n * n * d));
    table.push_back(c_proj->row({tokens}));
  }

  std::shared_ptr<Linear> c_attn, c_proj;
  Dropout attn_drop, drop;
  int64_t heads, head_width;
};

struct GptMlp : Layer {
  GptMlp(Scope where, const GptOptions& o)
      : Layer(std::move(where)),
        c_fc(child<Linear>("c_fc", o.width, 4 * o.width, gpt_linear(Split::columns))),
        c_proj(child<Linear>("c_proj", 4 * o.width, o.width,
                             gpt_linear(Split::rows, gpt_residual_std(o)))),
        drop(scope(), "dropout", o.dropout) {}

  at::Tensor forward(const at::Tensor& x, const Pass& pass) const {
    const auto here = enter();
    kernels::Activated h = columns_to(x, pass, *c_fc, kernels::Activation::gelu_tanh);
    return drop(c_proj->forward(std::move(h)), pass);
  }

  std::shared_ptr<Linear> c_fc, c_proj;
  Dropout drop;
};

MixtureOptions gpt_mixture(const GptOptions& o) {
  return {.width = o.width,
          .hidden = 4 * o.width,
          .std = gpt_std,
          .out_std = gpt_residual_std(o),
          .dropout = o.dropout};
}

struct GptBlock : Layer {
  GptBlock(Scope where, const GptOptions& o)
      : Layer(std::move(where)),
        ln_1(child<LayerNorm>("ln_1", o.width, o.eps)),
        attn(child<GptAttention>("attn", o)),
        ln_2(child<LayerNorm>("ln_2", o.width, o.eps)),
        mlp(o.moe.in_block(block_number(path())) ? nullptr : child<GptMlp>("mlp", o)),
        moe(mlp == nullptr ? child<Mixture>("mlp", o.moe, gpt_mixture(o)) : nullptr) {}

  Stream forward(Stream in, const Pass& pass) const {
    const auto here = enter();
    NormedSum first = ln_1->add(in.sum, std::move(in.branch));
    in = {};
    at::Tensor attended = attn->forward(std::exchange(first.y, {}), pass);
    NormedSum second = ln_2->add(first.sum, std::move(attended));
    first = {};
    const at::Tensor z = std::exchange(second.y, {});
    return {second.sum, moe != nullptr ? moe->forward(z, pass) : mlp->forward(z, pass)};
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    table.push_back(ln_1->row({tokens}));
    attn->rows(table, tokens);
    table.push_back(ln_2->row({tokens}));
    if (moe != nullptr) return moe->rows(table, tokens);
    table.push_back(mlp->c_fc->row({tokens}));
    table.push_back(mlp->c_proj->row({tokens}));
  }

  std::shared_ptr<LayerNorm> ln_1;
  std::shared_ptr<GptAttention> attn;
  std::shared_ptr<LayerNorm> ln_2;
  std::shared_ptr<GptMlp> mlp;   // null where a mixture stands
  std::shared_ptr<Mixture> moe;  // null where none does
};

struct GptBody : Layer {
  static constexpr const char* name = "transformer";
  static constexpr double head_std = gpt_std;

  GptBody(Scope where, const GptOptions& o)
      : Layer(std::move(where)),
        embedding(token_embedding(*this, "wte", o, Init::normal(gpt_std))),
        drop(scope(), "drop", o.dropout) {
    if (layout().holds_first())
      wpe = child<Embedding>("wpe", o.sequence, o.width, Init::normal(gpt_std));
    h = child<Blocks<GptBlock>>("h", o);
    if (layout().holds(o.layers - 1)) ln_f = child<LayerNorm>("ln_f", o.width, o.eps);
  }

  at::Tensor embed(const at::Tensor& tokens, const Pass& pass) const {
    const auto here = enter();
    const at::Tensor places = own_places(layout(), pass, tokens.device());
    return drop(embedding->forward(tokens) + wpe->forward(places), pass);
  }

  at::Tensor run(const at::Tensor& x, const Range& some, const Pass& pass) const {
    const auto here = enter();
    return h->forward(x, some, pass);
  }

  at::Tensor last_norm(const at::Tensor& x) const {
    const auto here = enter();
    return ln_f->forward(x);
  }

  std::vector<std::string> paths() const { return h->paths(); }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    table.push_back(embedding->row(tokens));
    table.push_back(wpe->row(tokens));
    h->rows(table, tokens);
    table.push_back(ln_f->row({tokens}));
  }

  std::shared_ptr<Embedding> embedding, wpe;
  std::shared_ptr<Blocks<GptBlock>> h;
  std::shared_ptr<LayerNorm> ln_f;
  Dropout drop;
};

using Gpt = LanguageModel<GptBody, GptOptions>;

}  // namespace

std::unique_ptr<Model> make_gpt(const GptOptions& options, const Build& build) {
  check_reference("gpt", build);
  if (options.width % options.heads != 0)
    throw ConfigError({
        .what = fmt::format("model.heads = {} does not divide model.width = {}", options.heads,
                            options.width),
        .why = "a head holds width / heads numbers of a token",
        .fix = "choose model.width as a multiple of model.heads",
    });
  check_heads(options.heads, build.layout);
  return std::make_unique<ModuleModel<Gpt>>("gpt", std::make_shared<Gpt>(Scope{build}, options));
}

}  // namespace braid::nn
