// SPDX-License-Identifier: BSD-3-Clause
// Small configs of every model, large enough that each kind of layer is there twice.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "braid/train/options.h"

namespace braid::test {

inline train::RunOptions small_run(nn::ModelName model, const std::string& precision = "fp32") {
  train::RunOptions run;
  run.model.name = model;
  run.model.mlp = {.inputs = 16, .hidden = {32, 24}, .outputs = 4, .dropout = 0.2};
  run.model.vit = {.image = {32, 64},
                   .patch = 8,
                   .channels_in = 4,
                   .channels_out = 4,
                   .width = 48,
                   .depth = 2,
                   .heads = 4,
                   .dropout = 0.1};
  run.model.swinir.image = {16, 24};
  run.model.swinir.width = 24;
  run.model.swinir.depths = {2, 2};
  run.model.swinir.heads = {2, 2};
  run.model.gpt = {.vocabulary = 128, .sequence = 32, .layers = 2, .heads = 4, .width = 64};
  run.model.llama = {.vocabulary = 128,
                     .sequence = 32,
                     .layers = 2,
                     .heads = 4,
                     .kv_heads = 2,
                     .width = 64,
                     .hidden = 96};
  run.data.sequence = 32;
  const bool scores =
      model == nn::ModelName::mlp || model == nn::ModelName::gpt || model == nn::ModelName::llama;
  run.train.loss = scores                        ? nn::Loss::cross_entropy
                   : model == nn::ModelName::vit ? nn::Loss::relative_l2
                                                 : nn::Loss::l1;
  run.train.precision = precision;
  run.train.global_batch = 4;
  run.train.clip = 1;
  run.optimizer.rule = {.name = optim::Algorithm::adamw, .lr = 1e-3, .weight_decay = 0.1};
  return run;
}

// Smaller still, of four blocks and with sizes that no number of ranks divides: for many layouts.
inline train::RunOptions tiny_run(nn::ModelName model, const std::string& precision = "fp64") {
  train::RunOptions run = small_run(model, precision);
  run.model.vit = {.image = {16, 24},
                   .patch = 8,
                   .channels_in = 2,
                   .channels_out = 2,
                   .width = 24,
                   .depth = 4,
                   .heads = 4,
                   .mlp_ratio = 2,
                   .dropout = 0.1};
  run.model.swinir.image = {16, 8};
  run.model.swinir.window = 4;
  run.model.swinir.width = 8;
  run.model.swinir.depths = {2, 2};
  run.model.swinir.heads = {2, 2};
  run.model.swinir.features = 8;
  run.model.gpt = {
      .vocabulary = 37, .sequence = 13, .layers = 4, .heads = 4, .width = 24, .dropout = 0.1};
  run.model.llama = {.vocabulary = 37,
                     .sequence = 13,
                     .layers = 4,
                     .heads = 4,
                     .kv_heads = 2,
                     .width = 24,
                     .hidden = 30};
  run.data.sequence = 13;
  // Momentum and decay show in the weights; Adam would hide a factor and blow up noise.
  run.optimizer.rule = {
      .name = optim::Algorithm::sgd, .lr = 0.05, .weight_decay = 0.1, .momentum = 0.9};
  return run;
}

inline const char* name_of(nn::ModelName model) {
  constexpr const char* names[] = {"mlp", "vit", "swinir", "gpt", "llama"};
  return names[static_cast<int>(model)];
}

}  // namespace braid::test
