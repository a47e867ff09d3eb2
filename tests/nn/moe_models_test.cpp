// SPDX-License-Identifier: BSD-3-Clause
// GPT and Llama with mixtures of experts: on one rank, over ranks, and without values.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "braid/memory/instruments.h"
#include "nn/golden.h"
#include "nn/moe_ranks.h"

namespace braid::nn {
namespace {

constexpr int64_t moe_sequence = 8, moe_vocabulary = 16, moe_samples = 4;

MoeOptions small_moe(std::optional<double> capacity = {}) {
  return {.experts = 4, .capacity = capacity, .shared = 1, .hidden = 6};
}

std::unique_ptr<Model> moe_gpt(const MoeOptions& moe, const Layout& layout = {},
                               std::string_view name = "fp64") {
  const GptOptions o = {.vocabulary = moe_vocabulary,
                        .sequence = moe_sequence,
                        .layers = 2,
                        .heads = 2,
                        .width = 8,
                        .dropout = 0.1,
                        .moe = moe};
  return make_gpt(o, {.seed = 3, .precision = precision(name), .layout = layout});
}

std::unique_ptr<Model> moe_llama(const MoeOptions& moe, const Layout& layout = {},
                                 std::string_view name = "fp64") {
  const LlamaOptions o = {.vocabulary = moe_vocabulary,
                          .sequence = moe_sequence,
                          .layers = 2,
                          .heads = 2,
                          .kv_heads = 2,
                          .width = 8,
                          .hidden = 12,
                          .moe = moe};
  return make_llama(o, {.seed = 3, .precision = precision(name), .layout = layout});
}

using MoeMaker = std::unique_ptr<Model> (*)(const MoeOptions&, const Layout&, std::string_view);
constexpr MoeMaker moe_makers[] = {moe_gpt, moe_llama};

at::Tensor model_tokens(std::string_view stream) {
  return test::drawn({moe_samples, moe_sequence}, 1, stream)
      .mul_(1e6)
      .to(at::kLong)
      .remainder(moe_vocabulary);
}

at::Tensor train_pass(Model& model, const at::Tensor& tokens, const at::Tensor& target, Pass pass,
                      Extras& extras) {
  pass.training = true;
  pass.extras = &extras;
  const at::Tensor output = model.forward(tokens, pass);
  const at::Tensor loss =
      nn::loss(Loss::cross_entropy, output, model.local_target(target), model.loss_share());
  loss.mul(extras.weight).backward();
  return loss.detach();
}

TEST(MixtureModels, TrainEveryParameterAndNoteWhatEachLayerDid) {
  for (const MoeMaker make : moe_makers) {
    const auto model = make(small_moe(1.0), {}, "fp64");
    Extras extras;
    const at::Tensor loss = train_pass(*model, model_tokens("x"), model_tokens("y"), {}, extras);
    EXPECT_TRUE(loss.isfinite().item<bool>());
    for (const Param& param : model->params()) {
      ASSERT_TRUE(param.tensor.grad().defined()) << param.name;
      EXPECT_GT(param.tensor.grad().abs().max().item<double>(), 0) << param.name;
    }
    EXPECT_EQ(extras.loads.size(), 2u);
    EXPECT_EQ(extras.losses.size(), 4u);  // aux and z of both layers
    for (const auto& [layer, load] : extras.loads)
      EXPECT_EQ(load.narrow(0, 0, 4).sum().item<int64_t>(), moe_samples * moe_sequence * 2)
          << layer;
    test::expect_rows_hold_all_parameters(*model);
  }
}

TEST(MixtureModels, HaveAMixtureInEveryKthBlock) {
  MoeOptions moe = small_moe();
  moe.every = 2;
  for (const MoeMaker make : moe_makers) {
    int64_t routers = 0, first = 0;
    const auto model = make(moe, {}, "fp32");
    for (const Param& param : model->params()) {
      routers += param.name.ends_with("mlp.router.weight");
      first += param.name.find(".0.mlp.router") != std::string::npos;
    }
    EXPECT_EQ(routers, 1);
    EXPECT_EQ(first, 0);
  }
}

// Loss and every gradient of a layout against those of one process.
void expect_model_as_alone(MoeMaker make, const MoeOptions& moe, const test::MoeLayout& layout,
                           int ranks) {
  const at::Tensor tokens = model_tokens("x"), target = model_tokens("y");
  const auto alone = make(moe, {}, "fp64");
  Extras noted;
  const at::Tensor wanted = train_pass(*alone, tokens, target, {.seed = 3, .step = 4}, noted);
  const auto gradients = test::gradients_of(*alone);
  test::on_ranks(ranks, [&](comm::Group world) {
    const test::MoeRank rank(world, layout);
    const auto model = make(moe, rank.built, "fp64");
    const int64_t rows = static_cast<int64_t>(moe_samples * rank.share());
    Pass pass = rank.pass(moe_samples);
    const int64_t first = pass.first_sample;
    pass.tokens = {};
    Extras extras = {.weight = rank.share()};
    const at::Tensor loss = train_pass(*model, tokens.narrow(0, first, rows),
                                       target.narrow(0, first, rows), pass, extras);
    using parallel::Axis;
    rank.group({Axis::data, Axis::expert}).all_reduce(loss.mul_(rank.share())).wait();
    EXPECT_LT(test::farthest(loss, wanted), 1e-12);
    for (const Param& param : model->params())
      EXPECT_LT(test::farthest(rank.summed_gradient(param),
                               test::piece_of(gradients.at(param.name), param)),
                1e-12)
          << param.name << " on rank " << world.rank();
  });
}

TEST(MixtureModels, OverExpertRanksEqualOneProcess) {
  for (const MoeMaker make : moe_makers)
    for (const std::optional<double> capacity : {std::optional<double>{}, {1.0}})
      expect_model_as_alone(make, small_moe(capacity), {.mesh = {.data = 2, .expert = 2}}, 4);
}

TEST(MixtureModels, OverTensorContextAndExpertRanksEqualOneProcess) {
  for (const MoeMaker make : moe_makers)
    expect_model_as_alone(make, small_moe(1.0),
                          {.mesh = {.data = 1, .tensor = 2, .context = 2, .expert = 2},
                           .sequence = true,
                           .method = parallel::ContextMethod::ring},
                          8);
}

// A dry run has no values: every router gets through with the shapes alone.
TEST(MixtureModels, RunDry) {
  for (const Router router : {Router::switch_top_1, Router::gshard, Router::top_k,
                              Router::noisy_top_k, Router::expert_choice})
    for (const std::optional<double> capacity : {std::optional<double>{}, {1.0}})
      for (const int ranks : {1, 2}) {
        const memory::Instruments dry({.dry = true});
        MoeOptions moe = small_moe(capacity);
        moe.router = router;
        Layout layout;
        if (ranks > 1) layout.expert = comm::Group(comm::dry(1, ranks));
        const auto model = moe_llama(moe, layout, "fp32");
        Extras extras;
        const at::Tensor tokens = at::empty({moe_samples, moe_sequence}, at::kLong);
        train_pass(*model, tokens, tokens, {}, extras);
        for (const Param& param : model->params())
          EXPECT_EQ(param.tensor.grad().sizes(), param.tensor.sizes()) << param.name;
      }
}

}  // namespace
}  // namespace braid::nn
