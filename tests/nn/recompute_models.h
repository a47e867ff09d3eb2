// SPDX-License-Identifier: BSD-3-Clause
// A pass forward and backward of a small model of every kind, with dropout, to be repeated with
// parts of it computed again.
//
//   const Trained plain = trained(small_models()[0], {});
//   expect_bits(trained(small_models()[0], {.what = memory::Again::blocks}), plain);
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "braid/memory/recompute.h"
#include "braid/nn/loss.h"
#include "braid/nn/options.h"
#include "support/drawn.h"

namespace braid::nn {

struct SmallModel {
  std::string name;
  std::function<std::unique_ptr<Model>(const Build&)> make;
  at::Tensor input, target;
  Loss loss = Loss::cross_entropy;
  int64_t blocks = 0;  // segments of one block
  int64_t attentions = 0;
};

inline at::Tensor recompute_tokens(uint64_t seed) {
  return test::drawn({2, 8}, seed, "tokens").mul(4).remainder(16).to(at::kLong);
}

inline GptOptions recompute_gpt_options(const MoeOptions& moe = {}) {
  return {.vocabulary = 16,
          .sequence = 8,
          .layers = 4,
          .heads = 2,
          .width = 16,
          .dropout = 0.2,
          .moe = moe};
}

inline SmallModel recompute_gpt(const std::string& name, const MoeOptions& moe = {}) {
  return {name,
          [moe](const Build& build) { return make_gpt(recompute_gpt_options(moe), build); },
          recompute_tokens(1),
          recompute_tokens(2),
          Loss::cross_entropy,
          4,
          4};
}

inline SmallModel recompute_mlp() {
  const MlpOptions options = {.inputs = 6, .hidden = {12, 10, 8}, .outputs = 4, .dropout = 0.3};
  return {"mlp",
          [options](const Build& build) { return make_mlp(options, build); },
          test::drawn({5, 6}, 1, "input"),
          test::drawn({5}, 2, "target").abs().to(at::kLong),
          Loss::cross_entropy,
          4,
          0};
}

inline SmallModel recompute_vit() {
  const VitOptions options = {.image = {8, 12},
                              .patch = 4,
                              .channels_in = 2,
                              .channels_out = 2,
                              .width = 12,
                              .depth = 4,
                              .heads = 2,
                              .dropout = 0.3};
  return {"vit",
          [options](const Build& build) { return make_vit(options, build); },
          test::drawn({3, 2, 8, 12}, 1, "input"),
          test::drawn({3, 2, 8, 12}, 2, "target"),
          Loss::relative_l2,
          4,
          4};
}

inline SmallModel recompute_swinir() {
  SwinirOptions options;
  options.image = {8, 8};
  options.window = 4;
  options.width = 8;
  options.depths = {3, 2};
  options.heads = {2, 2};
  options.features = 8;
  options.drop_path = 0.4;
  return {"swinir",
          [options](const Build& build) { return make_swinir(options, build); },
          test::drawn({3, 3, 8, 8}, 1, "input"),
          test::drawn({3, 3, 16, 16}, 2, "target"),
          Loss::l1,
          5,
          5};
}

inline SmallModel recompute_llama() {
  const LlamaOptions options = {.vocabulary = 16,
                                .sequence = 8,
                                .layers = 4,
                                .heads = 4,
                                .kv_heads = 2,
                                .width = 16,
                                .hidden = 20};
  return {"llama",
          [options](const Build& build) { return make_llama(options, build); },
          recompute_tokens(1),
          recompute_tokens(2),
          Loss::cross_entropy,
          4,
          4};
}

inline std::vector<SmallModel> small_models() {
  return {
      recompute_mlp(),
      recompute_vit(),
      recompute_swinir(),
      recompute_gpt("gpt"),
      recompute_llama(),
      recompute_gpt("moe", {.experts = 4, .z_loss = 0.1, .jitter = 0.1, .shared = 1}),
      recompute_gpt("noisy_moe", {.experts = 4, .router = Router::noisy_top_k, .capacity = 1.0})};
}

// How often each block ran.
struct CountedBlocks final : BlockRunner {
  at::Tensor run(const std::string& block, const at::Tensor& input,
                 const BlockForward& forward) override {
    ++runs[block];
    return forward(input);
  }
  std::map<std::string, int> runs;
};

struct Trained {
  at::Tensor loss;
  std::map<std::string, at::Tensor> grads;
  Extras extras;
  std::map<std::string, int> runs;
  memory::RecomputeCounts counts;
};

inline Trained trained(const SmallModel& given, const memory::RecomputeOptions& options,
                       const std::string& dtype = "fp32") {
  const auto model = given.make({.seed = 3, .precision = precision(dtype)});
  memory::Recompute again(options);
  CountedBlocks blocks;
  Trained found;
  const bool on = options.what != memory::Again::none || !options.blocks.empty();
  const Pass pass = {.training = true,
                     .seed = 5,
                     .step = 3,
                     .first_sample = 4,
                     .blocks = &blocks,
                     .segments = on ? &again : nullptr,
                     .extras = &found.extras};
  const at::Tensor input = given.input.is_floating_point()
                               ? given.input.to(model->params()[0].tensor.scalar_type())
                               : given.input;
  const at::Tensor value = loss(given.loss, model->forward(input, pass), given.target);
  value.backward();
  found.loss = value.detach();
  for (const Param& param : model->params()) found.grads[param.name] = param.tensor.grad();
  found.runs = blocks.runs;
  found.counts = again.counts();
  return found;
}

inline void expect_table(const std::map<std::string, at::Tensor>& found,
                         const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    ASSERT_EQ(found.at(name).defined(), value.defined()) << name;
    if (value.defined()) EXPECT_TRUE(found.at(name).equal(value)) << name;
  }
}

inline void expect_bits(const Trained& found, const Trained& expected) {
  EXPECT_TRUE(found.loss.equal(expected.loss));
  expect_table(found.grads, expected.grads);
  expect_table(found.extras.losses, expected.extras.losses);
  expect_table(found.extras.loads, expected.extras.loads);
}

}  // namespace braid::nn
