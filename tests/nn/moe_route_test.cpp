// SPDX-License-Identifier: BSD-3-Clause
// What routers promise: balance, capacity, the order in which tokens are served, and random numbers
// that depend on the place of a token alone.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "nn/moe_mixture.h"
#include "nn/moe_random.h"
#include "nn/moe_route.h"
#include "support/expect.h"

namespace braid::nn {
namespace {

RouteWhere whole_samples(int64_t tokens) {
  return {.tokens = {.tokens = tokens, .by_rank = {{{0, tokens}}}},
          .key = random_key(1, "router"),
          .training = true};
}

double only_loss(const RouteScores& scores, const MoeOptions& o, const std::string& name) {
  const RouteWhere where = whole_samples(scores.logits.size(1));
  const RouteLosses losses = route_losses(scores, choose(scores, o, where), o, where);
  EXPECT_TRUE(losses.contains(name));
  return losses.at(name).mean().item<double>();
}

TEST(Router, PaysItsCoefficientForEvenProbabilities) {
  const RouteScores even = {at::zeros({2, 12, 4}, at::kDouble)};
  for (const Router router : {Router::switch_top_1, Router::gshard, Router::top_k}) {
    const MoeOptions o = {.experts = 4, .router = router, .aux_loss = 0.01};
    EXPECT_DOUBLE_EQ(only_loss(even, o, "aux"), 0.01);
  }
}

TEST(Router, PaysTimesTheExpertsIfAllTokensGoToOne) {
  at::Tensor logits = at::zeros({2, 12, 4}, at::kDouble);
  logits.select(2, 1).fill_(1e4);
  const MoeOptions o = {.experts = 4, .router = Router::switch_top_1, .aux_loss = 0.01};
  EXPECT_DOUBLE_EQ(only_loss({logits}, o, "aux"), 0.04);
}

TEST(Router, PaysForLargeScores) {
  const RouteScores scores = {at::full({2, 12, 4}, 3.0, at::kDouble)};
  const double wanted = 0.5 * std::pow(3 + std::log(4.0), 2);
  EXPECT_NEAR(only_loss(scores, {.experts = 4, .z_loss = 0.5}, "z"), wanted, 1e-12);
}

// Importance and load are squared coefficients of variation: 0 if even, experts - 1 if one has all.
TEST(Router, PaysForUnevenImportanceAndLoad) {
  const MoeOptions o = {.experts = 4,
                        .router = Router::noisy_top_k,
                        .top_k = 1,
                        .importance_loss = 0.1,
                        .load_loss = 0.2};
  at::Tensor logits = at::zeros({2, 12, 4}, at::kDouble);
  logits.select(2, 1).fill_(1e4);
  const RouteScores one = {logits, at::full({2, 12, 4}, 1e-2, at::kDouble)};
  EXPECT_NEAR(only_loss(one, o, "importance"), 0.1 * 3, 1e-9);
  EXPECT_NEAR(only_loss(one, o, "load"), 0.2 * 3, 1e-9);
  at::Tensor turns = at::zeros({2, 12, 4}, at::kDouble);  // token t likes expert t mod 4
  for (int64_t t = 0; t < 12; ++t) turns.select(1, t).select(1, t % 4).fill_(1e4);
  const RouteScores even = {turns, one.spread};
  EXPECT_NEAR(only_loss(even, o, "importance"), 0, 1e-12);
  EXPECT_NEAR(only_loss(even, o, "load"), 0, 1e-12);
}

// Scores under which token t of a sample chooses these experts, best first.
at::Tensor scores_for(const std::vector<std::vector<int64_t>>& experts) {
  at::Tensor logits = at::zeros({1, static_cast<int64_t>(experts.size()), 3}, at::kDouble);
  for (size_t t = 0; t < experts.size(); ++t)
    for (size_t choice = 0; choice < experts[t].size(); ++choice)
      logits[0][static_cast<int64_t>(t)][experts[t][choice]].fill_(9.0 -
                                                                   static_cast<double>(choice));
  return logits;
}

std::vector<int64_t> slots(const Routes& routes) {
  const at::Tensor flat = routes.map.slot.reshape({-1}).contiguous();
  const int64_t* begin = flat.const_data_ptr<int64_t>();
  return {begin, begin + flat.numel()};
}

TEST(Router, ServesFirstChoicesBeforeSecondOnesInTheOrderOfTokens) {
  // Expert 0 is wanted first by tokens 1 and 2, and second by 0 and 3; it has 3 places.
  const at::Tensor logits = scores_for({{1, 0}, {0, 1}, {0, 2}, {2, 0}});
  const MoeOptions o = {.experts = 3, .router = Router::top_k, .capacity = 1.125};
  const RouteWhere where = whole_samples(4);
  ASSERT_EQ(capacity_of(o, 4), 3);
  const Routes routes = place(choose({logits}, o, where), o, where);
  EXPECT_EQ(slots(routes), std::vector<int64_t>({3, 2, 0, 4, 1, 7, 6, 9}));
  const std::vector<int64_t> load = {4, 2, 2, 1};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(routes.load[i].item<int64_t>(), load[i]);
}

TEST(Router, DropsWhatIsOverTheCapacity) {
  const at::Tensor logits = test::drawn({5, 16, 4}, 1, "logits");
  for (const double capacity : {0.25, 0.5, 1.0, 1.25})
    for (const Router router : {Router::switch_top_1, Router::top_k}) {
      const MoeOptions o = {.experts = 4, .router = router, .capacity = capacity};
      const RouteWhere where = whole_samples(16);
      const Choices choices = choose({logits}, o, where);
      int64_t wanted = 0;
      for (int64_t sample = 0; sample < 5; ++sample)
        for (int64_t expert = 0; expert < 4; ++expert)
          wanted += std::max<int64_t>(
              0, choices.index[sample].eq(expert).sum().item<int64_t>() - capacity_of(o, 16));
      EXPECT_EQ(place(choices, o, where).load[4].item<int64_t>(), wanted);
    }
}

TEST(Router, OfExpertChoiceGivesEveryExpertAsMany) {
  const MoeOptions o = {.experts = 4, .router = Router::expert_choice, .capacity = 1.25};
  const RouteWhere where = whole_samples(16);
  const Routes routes = place(choose({test::drawn({3, 16, 4}, 1, "x")}, o, where), o, where);
  for (int64_t expert = 0; expert < 4; ++expert)
    EXPECT_EQ(routes.load[expert].item<int64_t>(), 3 * 10);  // 16 / 4 * 1.25 * 2 of each sample
}

TEST(Router, TakesTheSecondExpertOfGshardByItsGate) {
  const MoeOptions o = {.experts = 2, .router = Router::gshard};
  at::Tensor logits = at::zeros({1, 20'000, 2}, at::kDouble);
  logits.select(2, 0).fill_(std::log(9.0));  // gates 0.9 and 0.1: the second is kept in 2 of 10
  const Choices choices = choose({logits}, o, whole_samples(20'000));
  EXPECT_TRUE(choices.taken.select(2, 0).all().item<bool>());
  EXPECT_NEAR(choices.taken.select(2, 1).to(at::kDouble).mean().item<double>(), 0.2, 0.01);
}

TEST(Router, DrawsNumbersOfTheRightDistribution) {
  const at::Tensor index = at::arange(200'000, at::kLong);
  const at::Tensor uniform = uniform_at(index, {7}), normal = normal_at(index, {7});
  EXPECT_NEAR(uniform.mean().item<double>(), 0.5, 0.005);
  EXPECT_NEAR(uniform.var().item<double>(), 1.0 / 12, 0.001);
  EXPECT_NEAR(normal.mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(normal.var().item<double>(), 1, 0.01);
  EXPECT_NEAR(normal.pow(4).mean().item<double>(), 3, 0.1);
  EXPECT_TRUE(normal_at(index.narrow(0, 500, 9), {7}).equal(normal.narrow(0, 500, 9)));
  EXPECT_FALSE(normal_at(index, {8}).equal(normal));
}

TEST(Router, SaysWhatIsWrongWithItsOptions) {
  const auto wrong = [](const MoeOptions& o, const Layout& layout = {}) {
    return test::error_of([&] { test::mixture(o, false, layout); });
  };
  using test::contains;
  EXPECT_TRUE(contains(wrong({.experts = 4, .top_k = 5}),
                       "model.moe.top_k = 5 is more than model.moe.experts = 4"));
  EXPECT_TRUE(contains(wrong({.experts = 4, .capacity = -1}), "model.moe.capacity = -1"));
  const std::string none = wrong({.experts = 4, .capacity = 0, .min_capacity = 0});
  EXPECT_TRUE(contains(none, "model.moe.capacity = 0"));
  EXPECT_TRUE(contains(none, "or none to let experts take all tokens that chose them"));
  EXPECT_TRUE(contains(wrong({.experts = 4, .router = Router::gshard, .top_k = 3}),
                       "model.moe.top_k = 3 with model.moe.router = gshard"));
  EXPECT_TRUE(contains(wrong({.experts = 4, .top_k = 1}), "set model.moe.router=switch"));
  const Layout three = {.expert = comm::Group(comm::dry(0, 3))};
  EXPECT_TRUE(contains(wrong({.experts = 4}, three),
                       "mesh.expert = 3 does not divide model.moe.experts = 4"));
}

}  // namespace
}  // namespace braid::nn
