// SPDX-License-Identifier: BSD-3-Clause
// A mixture of experts on one rank: against the same written out token by token, and what its
// routers promise.
#include <gtest/gtest.h>

#include "nn/moe_mixture.h"
#include "nn/moe_naive.h"
#include "support/expect.h"

namespace braid::nn {
namespace {

using test::farthest;
using test::mixture;
using test::moe_tokens;
using test::moe_width;
using test::pass_over;

constexpr Router every_router[] = {Router::switch_top_1, Router::gshard, Router::top_k,
                                   Router::noisy_top_k, Router::expert_choice};

at::Tensor mixture_tokens(int64_t samples) {
  return test::drawn({samples, moe_tokens, moe_width}, 1, "tokens");
}
at::Tensor mixture_weights(int64_t samples) {
  return test::drawn({samples, moe_tokens, moe_width}, 2, "weights");
}

MoeOptions without_losses(Router router, std::optional<double> capacity, int64_t shared = 0) {
  return {.experts = 4,
          .router = router,
          .capacity = capacity,
          .aux_loss = 0,
          .importance_loss = 0,
          .load_loss = 0,
          .z_loss = 0,
          .shared = shared};
}

// Evaluation: nothing is drawn.
void expect_as_written_out(const MoeOptions& moe, bool gated) {
  const auto model = mixture(moe, gated);
  test::NaiveMixture naive = {.moe = moe};
  std::map<std::string, at::Tensor> leaves;
  for (const Param& param : model->params())
    leaves[param.name.substr(4)] = param.tensor.detach().clone().requires_grad_();
  naive.weights = leaves;
  const at::Tensor x = mixture_tokens(3).requires_grad_(), weigh = mixture_weights(3);
  const auto got = pass_over(*model, x, weigh, {.training = false});
  const at::Tensor wanted = naive.forward(x);
  wanted.mul(weigh).sum().backward();
  EXPECT_LT(farthest(got.output, wanted.detach()), 1e-13);
  EXPECT_LT(farthest(got.input_gradient, x.grad()), 1e-13);
  for (const auto& [name, leaf] : leaves) {
    if (name == "router.noise") continue;  // no noise in evaluation
    ASSERT_TRUE(leaf.grad().defined()) << name;
    EXPECT_LT(farthest(got.gradients.at("mlp." + name), leaf.grad()), 1e-12) << name;
  }
}

TEST(Mixture, EqualsTheSumOverTokensWrittenOut) {
  for (const Router router : every_router)
    for (const std::optional<double> capacity : {std::optional<double>{}, {0.5}, {1.0}, {1.25}})
      for (const int64_t shared : {0, 2}) {
        SCOPED_TRACE(testing::Message() << "router " << static_cast<int>(router) << " capacity "
                                        << capacity.value_or(0) << " shared " << shared);
        expect_as_written_out(without_losses(router, capacity, shared), shared > 0);
      }
}

TEST(Mixture, NotesLoadsAndDropsInTheOrderOfTokens) {
  for (const Router router : {Router::switch_top_1, Router::top_k, Router::expert_choice}) {
    const MoeOptions moe = without_losses(router, 0.5);
    const auto model = mixture(moe);
    test::NaiveMixture naive = {.moe = moe};
    for (const Param& param : model->params()) naive.weights[param.name.substr(4)] = param.tensor;
    naive.forward(mixture_tokens(3));
    const auto got = pass_over(*model, mixture_tokens(3), mixture_weights(3));
    const at::Tensor load = got.extras.loads.at("mlp");
    ASSERT_EQ(load.numel(), 5);
    for (int64_t e = 0; e < 4; ++e) EXPECT_EQ(load[e].item<int64_t>(), naive.load[e]);
    EXPECT_EQ(load[4].item<int64_t>(), naive.dropped);
    EXPECT_GT(naive.dropped, 0);
  }
}

TEST(Mixture, WithRoomForAllEqualsTheDroplessOne) {
  for (const Router router :
       {Router::switch_top_1, Router::gshard, Router::top_k, Router::noisy_top_k}) {
    const auto dropless = mixture({.experts = 4, .router = router});
    const auto roomy = mixture({.experts = 4, .router = router, .capacity = 100});
    const auto a = pass_over(*dropless, mixture_tokens(3), mixture_weights(3));
    const auto b = pass_over(*roomy, mixture_tokens(3), mixture_weights(3));
    EXPECT_LT(farthest(a.output, b.output), 1e-13);
    EXPECT_LT(farthest(a.input_gradient, b.input_gradient), 1e-12);
    for (const auto& [name, gradient] : a.gradients)
      EXPECT_LT(farthest(gradient, b.gradients.at(name)), 1e-12) << name;
    EXPECT_EQ(b.extras.loads.at("mlp")[4].item<int64_t>(), 0);
  }
}

// Gates decide how much of an expert a token gets, not which one: scores of others have no part.
TEST(Mixture, RouterLearnsThroughTheProbabilityOfItsChoiceAlone) {
  const auto model = mixture(without_losses(Router::switch_top_1, {}));
  at::Tensor weight;
  for (const Param& param : model->params())
    if (param.name == "mlp.router.weight") weight = param.tensor;
  const at::Tensor x = mixture_tokens(2), weigh = mixture_weights(2);
  const auto got = pass_over(*model, x, weigh);
  // d/dW of sum_t p_chosen(t) <weigh_t, expert(x_t)>, with experts taken as constants.
  const at::Tensor w = weight.detach().clone().requires_grad_();
  const at::Tensor p = x.matmul(w.t()).softmax(-1);
  const at::Tensor chosen = p.argmax(-1, true), gate = p.gather(-1, chosen);
  const at::Tensor expert = got.output.div(gate.detach());
  gate.squeeze(-1).mul(expert.mul(weigh).sum(-1)).sum().backward();
  EXPECT_LT(farthest(got.gradients.at("mlp.router.weight"), w.grad()), 1e-12);
}

// A pass over all samples, or over parts of them with their shares of the batch.
TEST(Mixture, DoesNotDependOnHowABatchIsSplit) {
  for (const Router router : every_router) {
    const MoeOptions moe = {
        .experts = 4, .router = router, .capacity = 0.75, .jitter = 0.1, .shared = 1};
    const auto whole = mixture(moe), parts = mixture(moe);
    const at::Tensor x = mixture_tokens(4), weigh = mixture_weights(4);
    const auto wanted = pass_over(*whole, x, weigh);
    double losses = 0;
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 3}}) {
      const Pass pass = {.training = true, .seed = 3, .step = 4, .first_sample = first};
      const auto got = pass_over(*parts, x.narrow(0, first, count), weigh.narrow(0, first, count),
                                 pass, static_cast<double>(count) / 4);
      EXPECT_LT(farthest(got.output, wanted.output.narrow(0, first, count)), 1e-13);
      for (const auto& [name, value] : got.extras.losses) losses += value.item<double>();
    }
    for (const auto& [name, value] : wanted.extras.losses) losses -= value.item<double>();
    EXPECT_NEAR(losses, 0, 1e-12);
    for (const Param& param : parts->params())
      EXPECT_LT(farthest(param.tensor.grad(), wanted.gradients.at(param.name)), 1e-12)
          << param.name;
  }
}

TEST(Mixture, DrawsByStepAndOnlyInTraining) {
  const auto model = mixture({.experts = 4, .router = Router::noisy_top_k});
  const at::Tensor x = mixture_tokens(2);
  const auto at_step = [&](int64_t step, bool training) {
    return model->forward(x, {.training = training, .seed = 3, .step = step}).detach();
  };
  EXPECT_TRUE(at_step(1, true).equal(at_step(1, true)));
  EXPECT_FALSE(at_step(1, true).equal(at_step(2, true)));
  EXPECT_TRUE(at_step(1, false).equal(at_step(2, false)));
}

TEST(Mixture, CountsItsParametersAndProducts) {
  const MoeOptions moe = {.experts = 4, .shared = 2};
  const auto model = mixture(moe, /*gated=*/true);
  int64_t parameters = 0;
  for (const LayerRow& row : model->layers()) parameters += row.parameters;
  EXPECT_EQ(parameters, model->parameters());
  const double each = 2 * 6 * 5 * 3;  // of a row through an expert
  EXPECT_EQ(model->flops_forward(), 8 * (2 * 6 * 4 + 2 * each + 2 * each));
}

TEST(Mixture, ComputesInHalfPrecisionWithARouterInSingle) {
  const MoeOptions moe = {.experts = 4, .shared = 1};
  const auto half = mixture(moe, true, {}, "bf16"), full = mixture(moe, true, {}, "fp64");
  const at::Tensor x = mixture_tokens(2);
  const at::Tensor y = half->forward(x.to(at::kFloat), {});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LT(farthest(y.to(at::kDouble), full->forward(x, {}).detach()), 0.1);
}

}  // namespace
}  // namespace braid::nn
