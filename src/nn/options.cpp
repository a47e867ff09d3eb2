// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/options.h"

#include <fmt/format.h>

#include "braid/core/error.h"

namespace braid::nn {

void describe(Fields& fields, MlpOptions& o) {
  fields.field("inputs", o.inputs, "numbers in a sample", {.at_least = 1});
  fields.field("hidden", o.hidden, "widths of the hidden layers", {.at_least = 1});
  fields.field("outputs", o.outputs, "classes, or numbers in a target", {.at_least = 1});
  fields.field("dropout", o.dropout, "share of hidden values dropped in training",
               {.at_least = 0, .at_most = 0.99});
}

void describe(Fields& fields, VitOptions& o) {
  fields.field("image", o.image, "rows and columns of a field", {.at_least = 1});
  fields.field("patch", o.patch, "side of a square patch; a patch is a token", {.at_least = 1});
  fields.field("channels_in", o.channels_in, "channels of the input", {.at_least = 1});
  fields.field("channels_out", o.channels_out, "channels of the output", {.at_least = 1});
  fields.field("width", o.width, "numbers in a token", {.at_least = 1});
  fields.field("depth", o.depth, "transformer blocks", {.at_least = 1});
  fields.field("heads", o.heads, "attention heads; divides width", {.at_least = 1});
  fields.field("mlp_ratio", o.mlp_ratio, "hidden width of a block's MLP over width", {.above = 0});
  fields.field("dropout", o.dropout, "dropout, attention dropout and largest drop-path rate",
               {.at_least = 0, .at_most = 0.99});
  fields.field("eps", o.eps, "added to the variance in LayerNorm", {.above = 0});
}

void describe(Fields& fields, SwinirOptions& o) {
  fields.field("image", o.image, "rows and columns of a low-resolution input; other sizes run too",
               {.at_least = 1});
  fields.field("channels", o.channels, "channels of input and output", {.at_least = 1});
  fields.field("scale", o.scale, "output size over input size", {.at_least = 1});
  fields.field("window", o.window, "side of an attention window", {.at_least = 2});
  fields.field("width", o.width, "features of a pixel in the body", {.at_least = 1});
  fields.field("depths", o.depths, "Swin blocks of each residual group", {.at_least = 1});
  fields.field("heads", o.heads, "attention heads of each residual group; divide width",
               {.at_least = 1});
  fields.field("mlp_ratio", o.mlp_ratio, "hidden width of a block's MLP over width", {.above = 0});
  fields.field("drop_path", o.drop_path, "drop-path rate of the last block; grows linearly from 0",
               {.at_least = 0, .at_most = 0.99});
  fields.choice("upsampler", o.upsampler,
                {"pixelshuffle", "pixelshuffledirect", "nearest+conv", "none"},
                "how the output gets its size; none: same size, adds the input");
  fields.choice("residual", o.residual, {"1conv", "3conv"},
                "convolutions at the end of a residual group");
  fields.field("features", o.features, "features of a pixel in the upsampler", {.at_least = 1});
  fields.field("mean", o.mean, "of each channel, taken off the input and added to the output");
  fields.field("std", o.std, "of each channel, divides the input and multiplies the output",
               {.above = 0});
}

void describe(Fields& fields, MoeOptions& o) {
  fields.field("experts", o.experts, "experts in place of the MLP; 0: the MLP stays",
               {.at_least = 0});
  fields.choice("router", o.router, {"switch", "gshard", "top_k", "noisy_top_k", "expert_choice"},
                "who chooses whom: one expert, two, top_k, top_k after noise, or experts tokens");
  fields.field("top_k", o.top_k, "experts of a token; auto: 1 of switch, else 2",
               {.at_least = 1, .none = "auto"});
  fields.field("normalize", o.normalize, "router top_k: the gates of a token add up to 1");
  fields.field("capacity", o.capacity,
               "times tokens / experts * top_k: most tokens of a sample that an expert takes; "
               "none: all of them");
  fields.field("min_capacity", o.min_capacity,
               "an expert takes at least so many tokens of a sample", {.at_least = 0});
  fields.field("aux_loss", o.aux_loss, "weight of the balance of switch, gshard and top_k",
               {.at_least = 0});
  fields.field("importance_loss", o.importance_loss, "weight of the balance of noisy_top_k's gates",
               {.at_least = 0});
  fields.field("load_loss", o.load_loss, "weight of the balance of noisy_top_k's expected loads",
               {.at_least = 0});
  fields.field("z_loss", o.z_loss, "weight of the squared log-sum-exp of the router's scores",
               {.at_least = 0});
  fields.field("jitter", o.jitter, "the router's input is multiplied by 1 - jitter ... 1 + jitter",
               {.at_least = 0, .at_most = 0.99});
  fields.field("shared", o.shared, "experts that every token goes through besides",
               {.at_least = 0});
  fields.field("hidden", o.hidden, "hidden width of an expert; 0: that of the MLP",
               {.at_least = 0});
  fields.field("every", o.every, "the last of so many blocks has the experts", {.at_least = 1});
}

void describe(Fields& fields, GptOptions& o) {
  fields.field("vocabulary", o.vocabulary, "token numbers 0 ... vocabulary - 1", {.at_least = 1});
  fields.field("sequence", o.sequence, "longest sequence", {.at_least = 1});
  fields.field("layers", o.layers, "transformer blocks", {.at_least = 1});
  fields.field("heads", o.heads, "attention heads; divides width", {.at_least = 1});
  fields.field("width", o.width, "numbers in a token", {.at_least = 1});
  fields.field("dropout", o.dropout, "of embeddings, attention and residual branches",
               {.at_least = 0, .at_most = 0.99});
  fields.field("eps", o.eps, "added to the variance in LayerNorm", {.above = 0});
  fields.field("tied", o.tied, "the output layer shares the token embedding");
  fields.section("moe", o.moe, "a mixture of experts in place of MLPs");
}

void describe(Fields& fields, LlamaOptions& o) {
  fields.field("vocabulary", o.vocabulary, "token numbers 0 ... vocabulary - 1", {.at_least = 1});
  fields.field("sequence", o.sequence, "longest sequence", {.at_least = 1});
  fields.field("layers", o.layers, "transformer blocks", {.at_least = 1});
  fields.field("heads", o.heads, "query heads; divides width", {.at_least = 1});
  fields.field("kv_heads", o.kv_heads, "key and value heads; divides heads", {.at_least = 1});
  fields.field("width", o.width, "numbers in a token", {.at_least = 1});
  fields.field("hidden", o.hidden, "hidden width of a block's MLP", {.at_least = 1});
  fields.field("rope_theta", o.rope_theta, "base of the rotary frequencies", {.above = 0});
  fields.field("rope_factor", o.rope_factor, "Llama-3 scaling of low frequencies; 1: none",
               {.at_least = 1});
  fields.field("rope_low", o.rope_low, "low-frequency factor of the scaling", {.above = 0});
  fields.field("rope_high", o.rope_high, "high-frequency factor of the scaling", {.above = 0});
  fields.field("rope_original", o.rope_original, "sequence length before the scaling",
               {.at_least = 1});
  fields.field("eps", o.eps, "added to the mean square in RMSNorm", {.above = 0});
  fields.field("tied", o.tied, "the output layer shares the token embedding");
  fields.section("moe", o.moe, "a mixture of experts in place of MLPs");
}

void describe(Fields& fields, OwnOptions& o) {
  fields.field("of", o.of, "what the program calls the model");
}

void describe(Fields& fields, ModelOptions& o) {
  fields.choice(
      "name", o.name, {"mlp", "vit", "swinir", "gpt", "llama", "own"},
      "which model; own: a class of the program that trained it, which no command can make");
  fields.choice("kernels", o.kernels, {"braid", "reference"},
                "reference: operators, casts and buffers of the first PyTorch implementation, to "
                "reproduce its memory");
  switch (o.name) {
    case ModelName::mlp:
      return describe(fields, o.mlp);
    case ModelName::vit:
      return describe(fields, o.vit);
    case ModelName::swinir:
      return describe(fields, o.swinir);
    case ModelName::gpt:
      return describe(fields, o.gpt);
    case ModelName::llama:
      return describe(fields, o.llama);
    case ModelName::own:
      return describe(fields, o.own);
  }
}

namespace {

ConfigError made_elsewhere(const OwnOptions& o) {
  return ConfigError(
      {.what = fmt::format("model.name = own: the model{} was made by the program that trained it",
                           o.of.empty() ? "" : " " + o.of),
       .why = "its layers are code of that program, which is not here",
       .fix = "run that program, e.g. with train::fit and {.resume = true}; the weights are in "
              "model.safetensors of each checkpoint"});
}

}  // namespace

std::unique_ptr<Model> make_model(const ModelOptions& o, const Build& given) {
  Build build = given;
  if (o.kernels != Kernels::braid) build.kernels = o.kernels;
  switch (o.name) {
    case ModelName::mlp:
      return make_mlp(o.mlp, build);
    case ModelName::vit:
      return make_vit(o.vit, build);
    case ModelName::swinir:
      return make_swinir(o.swinir, build);
    case ModelName::gpt:
      return make_gpt(o.gpt, build);
    case ModelName::llama:
      return make_llama(o.llama, build);
    case ModelName::own:
      throw made_elsewhere(o.own);
  }
  throw InternalError({.what = "a model name outside the list",
                       .why = "ModelName has six values",
                       .fix = "report this"});
}

}  // namespace braid::nn
