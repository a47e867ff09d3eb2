// SPDX-License-Identifier: BSD-3-Clause
// Experts spread over ranks equal all experts in one process, whatever the router and whatever else
// is spread.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/comm/counting.h"
#include "nn/moe_ranks.h"

namespace braid::nn {
namespace {

using test::expect_as_alone;
using test::MoeLayout;

constexpr Router moe_routers[] = {Router::switch_top_1, Router::gshard, Router::top_k,
                                  Router::noisy_top_k, Router::expert_choice};
constexpr const char* moe_router_names[] = {"switch", "gshard", "top_k", "noisy_top_k",
                                            "expert_choice"};

// Every router with a tight and a loose capacity and without one, with and without shared experts.
void expect_all_as_alone(const MoeLayout& layout) {
  std::vector<test::MoeCase> cases;
  for (const Router router : moe_routers)
    for (const std::optional<double> capacity : {std::optional<double>{}, {1.0}, {1.25}})
      for (const int64_t shared : {0, 1}) {
        const MoeOptions moe = {
            .experts = 4, .router = router, .capacity = capacity, .shared = shared};
        const std::string name =
            fmt::format("{}, capacity {}, shared {}: ", moe_router_names[static_cast<int>(router)],
                        capacity.value_or(0), shared);
        cases.push_back({moe, /*gated=*/shared > 0, name});
      }
  expect_as_alone(cases, layout);
}

TEST(MixtureOverRanks, ExpertsOnTwo) { expect_all_as_alone({.mesh = {.data = 1, .expert = 2}}); }
TEST(MixtureOverRanks, ExpertsOnFour) { expect_all_as_alone({.mesh = {.data = 1, .expert = 4}}); }
TEST(MixtureOverRanks, ExpertsAndData) { expect_all_as_alone({.mesh = {.data = 2, .expert = 2}}); }

TEST(MixtureOverRanks, ExpertsAndTensor) {
  expect_all_as_alone({.mesh = {.data = 1, .tensor = 2, .expert = 2}});
}

TEST(MixtureOverRanks, ExpertsAndTensorWithTokensSpread) {
  expect_all_as_alone({.mesh = {.data = 1, .tensor = 2, .expert = 2}, .sequence = true});
}

TEST(MixtureOverRanks, ExpertsAndContext) {
  expect_all_as_alone({.mesh = {.data = 1, .context = 2, .expert = 2}});
}

// Each rank has a run of tokens from the head and one from the tail, of uneven lengths.
TEST(MixtureOverRanks, ContextInHeadAndTail) {
  for (const int64_t tokens : {8, 11})
    expect_all_as_alone({.mesh = {.data = 1, .context = 2},
                         .method = parallel::ContextMethod::ring,
                         .tokens = tokens});
}

TEST(MixtureOverRanks, ContextOfThree) {
  expect_all_as_alone(
      {.mesh = {.data = 1, .context = 3}, .method = parallel::ContextMethod::ring, .tokens = 13});
}

TEST(MixtureOverRanks, TensorOfThreeWithTokensSpreadUnevenly) {
  expect_all_as_alone({.mesh = {.data = 1, .tensor = 3}, .sequence = true});
}

TEST(MixtureOverRanks, TensorContextAndExperts) {
  const MoeLayout layout = {.mesh = {.data = 1, .tensor = 2, .context = 2, .expert = 2},
                            .sequence = true,
                            .method = parallel::ContextMethod::ring};
  std::vector<test::MoeCase> cases;
  for (const Router router : moe_routers)
    cases.push_back(
        {{.experts = 4, .router = router, .capacity = 1.0, .jitter = 0.1, .shared = 1}});
  expect_as_alone(cases, layout);
}

// A rank may be left without a single token, and its experts without a gradient but zeros.
TEST(MixtureOverRanks, GoesOnWhenAllTokensWantOneExpert) {
  for (const std::optional<double> capacity : {std::optional<double>{}, {1.0}})
    test::on_ranks(2, [&](comm::Group world) {
      const MoeOptions moe = {.experts = 4, .router = Router::switch_top_1, .capacity = capacity};
      const auto model = test::mixture(moe, false, Layout{.expert = world});
      for (const Param& param : model->params())
        if (param.name == "mlp.router.weight") {
          const at::NoGradGuard no_grad;
          param.tensor.zero_();
          param.tensor[3].fill_(5);
        }
      const at::Tensor x = test::drawn({2, 8, test::moe_width}, 1, "tokens").abs();
      const auto got = test::pass_over(*model, x, x);
      EXPECT_EQ(got.extras.loads.at("mlp")[3].item<int64_t>(), 16);
      const double largest = got.gradients.at("mlp.experts.w1").abs().max().item<double>();
      if (world.rank() == 0)
        EXPECT_EQ(largest, 0);
      else
        EXPECT_GT(largest, 0);
    });
}

// Two all-to-alls forward and two backward of all slots; dropless besides the counts of experts.
TEST(MixtureOverRanks, SendsTokensFourTimesALayer) {
  for (const std::optional<double> capacity : {std::optional<double>{}, {1.0}}) {
    const auto traffic = std::make_shared<comm::Traffic>();
    const int64_t experts = 4, samples = 2;
    test::on_ranks(2, [&](comm::Group world) {
      const comm::Group expert(comm::counting(world.backend(), traffic));
      const MoeOptions moe = {.experts = experts, .capacity = capacity, .shared = 1};
      const at::Tensor x = test::drawn({samples, test::moe_tokens, test::moe_width}, 1, "tokens");
      test::pass_over(*test::mixture(moe, false, Layout{.expert = expert}), x, x);
    });
    EXPECT_EQ(traffic->calls(comm::Kind::all_to_all), 2 * 4);
    EXPECT_EQ(traffic->calls(comm::Kind::all_gather), capacity ? 0 : 2);
    EXPECT_EQ(traffic->calls(comm::Kind::all_reduce), 0);
    if (!capacity) continue;
    const double slots = static_cast<double>(samples * test::moe_tokens * 2);  // tokens * k
    const double each = slots * test::moe_width * 8 / 2;                       // (e - 1) / e
    EXPECT_DOUBLE_EQ(traffic->wire_bytes(), 2 * 4 * each);
  }
}

TEST(MixtureOverRanks, DescribesWhatItHolds) {
  test::on_ranks(4, [](comm::Group world) {
    const test::MoeRank rank(world, {.mesh = {.data = 1, .tensor = 2, .expert = 2}});
    const auto model = test::mixture({.experts = 4, .shared = 1}, true, rank.built);
    for (const Param& param : model->params()) {
      const bool routed = param.name.find(".experts.") != std::string::npos;
      EXPECT_EQ(param.expert, routed) << param.name;
      const bool copy = rank.built.expert.rank() > 0 ||
                        (param.name == "mlp.router.weight" && rank.built.tensor.rank() > 0);
      EXPECT_EQ(param.repeated, !routed && copy) << param.name;
      if (param.name == "mlp.experts.w1") {
        EXPECT_EQ(param.piece.whole, std::vector<int64_t>({4, 6, 5}));
        EXPECT_EQ(param.tensor.size(0), 2);
      }
    }
  });
}

}  // namespace
}  // namespace braid::nn
