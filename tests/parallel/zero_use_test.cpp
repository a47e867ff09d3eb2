// SPDX-License-Identifier: BSD-3-Clause
// Odd and wrong uses of ZeRO: they work, or they are refused in a sentence.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include <ATen/core/grad_mode.h>

#include "braid/memory/instruments.h"
#include "braid/parallel/zero.h"
#include "parallel/zero_toy.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using parallel::Zero;
using parallel::ZeroUnit;
using test::contains;
using test::error_of;
using test::Toy;
using test::ToyOptions;

at::Tensor use_batch() { return test::toy_values({4, 6}, "batch"); }
comm::Group one_of_two() { return comm::Group(comm::dry(0, 2)); }

TEST(ZeroUse, UnitsByPrefix) {
  const std::vector<Param> params = {{"embed", {}},
                                     {"blocks.1.a", {}},
                                     {"blocks.10.a", {}},
                                     {"blocks.1.mlp.b", {}},
                                     {"blocks.1", {}}};
  const auto units = parallel::units_of(params, {"blocks.1", "blocks.10", "blocks.1.mlp", "none"});
  std::vector<std::string> text;
  for (const ZeroUnit& unit : units) {
    text.push_back(unit.name + ":");
    for (const Param& param : unit.params) text.back() += " " + param.name;
  }
  EXPECT_EQ(text, (std::vector<std::string>{"blocks.1: blocks.1.a", "blocks.10: blocks.10.a",
                                            "blocks.1.mlp: blocks.1.mlp.b",
                                            "none:", ": embed blocks.1"}));
}

TEST(ZeroUse, PiecesTellOfTheWhole) {
  Toy model({.width = 7, .tied = true});
  int64_t elements = 0, wanted = 0;
  std::set<std::string> names;
  for (int rank = 0; rank < 3; ++rank) {
    Toy own({.width = 7, .tied = true});
    Zero zero(own.units(), comm::Group(comm::dry(rank, 3)), {}, {.stage = 3});
    EXPECT_EQ(zero.owners().size(), 3);
    for (const Param& piece : zero.params()) {
      elements += piece.tensor.numel();
      EXPECT_EQ(piece.dims(), model.find(piece.name).dim());
      EXPECT_TRUE(piece.tensor.is_leaf() && piece.tensor.requires_grad());
      names.insert(piece.name);
    }
  }
  std::set<const void*> seen;
  for (const Param& param : model.params)
    if (seen.insert(param.tensor.unsafeGetTensorImpl()).second) wanted += param.tensor.numel();
  EXPECT_EQ(elements, wanted);
  EXPECT_EQ(names.count("embed.weight") + names.count("head.weight"), 1);
}

TEST(ZeroUse, AModelSmallerThanTheRanks) {
  const at::Tensor x = test::toy_values({4, 1}, "x");
  test::on_ranks(4, [&](comm::Group world) {
    for (int stage = 1; stage <= 3; ++stage) {
      const at::Tensor w = test::toy_values({2, 1}, "w").requires_grad_();
      Zero zero({{"", {{"w", w}}}}, world, {}, {.stage = stage});
      zero.run("", x, [&](const at::Tensor& in) { return at::matmul(w, in.t()); }).sum().backward();
      zero.finish();
      EXPECT_EQ(zero.params().size(), world.rank() < 2 ? 1u : 0u);
      for (const Param& piece : zero.params())
        EXPECT_DOUBLE_EQ(piece.tensor.grad().item<double>(), x.sum().item<double>());
      test::toy_sgd(zero.params(), 0.1);
      zero.publish();
    }
  });
}

TEST(ZeroUse, ABlockThatRunsTwiceAndBlocksInAnotherOrder) {
  const auto forward = [](const Toy& model, BlockRunner* runner, std::vector<int64_t> order) {
    return run_block(runner, "", use_batch(), [&](const at::Tensor& in) {
      at::Tensor y = at::matmul(in, model.find("embed.weight"));
      for (const int64_t i : order)
        y = run_block(runner, "blocks." + std::to_string(i), y,
                      [&](const at::Tensor& x) { return model.block(i, x); });
      return y.mul(model.find("gain"));
    });
  };
  test::on_ranks(2, [&](comm::Group world) {
    for (const bool keep : {false, true}) {
      Toy model({.width = 5}), alone({.width = 5});
      Zero zero(model.units(), world, {}, {.stage = 3, .keep_gathered = keep});
      for (const std::vector<int64_t>& order : std::vector<std::vector<int64_t>>{
               {0, 1, 2}, {2, 0, 0, 1, 0}, {2, 0, 0, 1, 0}, {1}, {1, 2}, {0, 1, 2}}) {
        alone.zero_grad();
        forward(alone, nullptr, order).sum().backward();
        forward(model, &zero, order).sum().backward();
        zero.finish();
        for (const Param& piece : zero.params()) {
          const at::Tensor& wanted = alone.find(piece.name).grad();
          if (wanted.defined()) {
            EXPECT_TRUE(piece.tensor.grad().reshape({-1}).allclose(test::toy_piece(wanted, piece),
                                                                   1e-12, 1e-13));
          } else {
            EXPECT_EQ(piece.tensor.grad().abs().sum().item<double>(), 0);
          }
        }
      }
    }
  });
}

TEST(ZeroUse, WeightsOfTwoDtypesInOneBlock) {
  const auto made = [] {
    return std::vector<Param>{
        {"block.a", test::toy_values({6, 5}, "a").requires_grad_()},
        {"block.b", test::toy_values({5}, "b").to(c10::kFloat).requires_grad_()},
        {"block.c", test::toy_values({5}, "c").requires_grad_()}};
  };
  const auto forward = [](const std::vector<Param>& p, const at::Tensor& x) {
    return at::matmul(x, p[0].tensor).mul(p[1].tensor).add(p[2].tensor).tanh();
  };
  const std::vector<Param> alone = made();
  forward(alone, use_batch()).sum().backward();
  test::on_ranks(2, [&](comm::Group world) {
    for (int stage = 1; stage <= 3; ++stage) {
      const std::vector<Param> params = made();
      Zero zero({{"block", params}}, world, {}, {.stage = stage});
      zero.run("block", use_batch(), [&](const at::Tensor& x) { return forward(params, x); })
          .sum()
          .backward();
      zero.finish();
      for (const Param& piece : zero.params())
        for (const Param& whole : alone)
          if (whole.name == piece.name) {
            EXPECT_TRUE(piece.tensor.grad().equal(test::toy_piece(whole.tensor.grad(), piece)));
          }
    }
  });
}

// As a pipeline does.
TEST(ZeroUse, TwoForwardPassesBeforeTheirBackwardPasses) {
  test::on_ranks(2, [&](comm::Group world) {
    for (int stage = 2; stage <= 3; ++stage)
      for (const bool keep : {false, true}) {
        Toy model({.width = 5, .frozen = true}), alone({.width = 5, .frozen = true});
        alone.loss(use_batch(), 1).backward();
        alone.loss(use_batch().mul(2), 1).backward();
        Zero zero(model.units(), world, {}, {.stage = stage, .keep_gathered = keep});
        const at::Tensor first = model.loss(use_batch(), 1, &zero);
        const at::Tensor second = model.loss(use_batch().mul(2), 1, &zero);
        {
          const at::NoGradGuard no_grad;
          model.forward(use_batch(), &zero);  // an evaluation in between
        }
        first.backward();  // hold() is not needed where every pass is summed
        second.backward();
        zero.finish();
        for (const Param& piece : zero.params())
          if (piece.tensor.requires_grad()) {
            EXPECT_TRUE(piece.tensor.grad().reshape({-1}).allclose(
                test::toy_piece(alone.find(piece.name).grad(), piece), 1e-12, 1e-13));
          }
      }
  });
}

TEST(ZeroUse, AGradientOfTheInput) {
  test::on_ranks(2, [&](comm::Group world) {
    Toy model({.width = 5, .frozen = true}), alone({.width = 5, .frozen = true});
    const at::Tensor x = use_batch().requires_grad_(), y = use_batch().requires_grad_();
    alone.loss(x, 1).backward();
    Zero zero(model.units(), world, {}, {.stage = 3});
    model.loss(y, 1, &zero).backward();
    zero.finish();
    EXPECT_TRUE(y.grad().equal(x.grad()));
  });
}

TEST(ZeroUse, TakesItsHooksOff) {
  Toy model;
  {
    const Zero gone(model.units(), one_of_two());
  }
  model.loss(use_batch(), 4).backward();
  model.loss(use_batch(), 4).backward();
}

TEST(ZeroUse, AnUnknownBlockIsRefused) {
  Toy model;
  Zero zero(model.units(), one_of_two(), {}, {.stage = 1});
  const auto same = [](const at::Tensor& x) { return x; };
  EXPECT_TRUE(contains(error_of([&] { zero.run("block.1", use_batch(), same); }),
                       "did you mean \"blocks.1\"?"));
  EXPECT_TRUE(contains(error_of([&] { zero.run("decoder", use_batch(), same); }),
                       "give the block \"decoder\" to units_of()"));
}

TEST(ZeroUse, ABlockOutsideOfTheRootIsRefused) {
  Toy model;
  Zero zero(model.units(), one_of_two(), {}, {.stage = 3});
  const std::string text =
      error_of([&] { zero.run("blocks.0", use_batch(), [](const at::Tensor& x) { return x; }); });
  EXPECT_TRUE(contains(text, "run(\"blocks.0\") outside of run(\"\")"));
  EXPECT_TRUE(contains(text, "embed.weight is in no block"));
}

TEST(ZeroUse, ASecondBackwardWithoutHoldIsRefused) {
  const auto twice = [](Zero& zero, const Toy& model) {
    return error_of([&] {
      for (int i = 0; i < 2; ++i) model.loss(use_batch(), 4, &zero).backward();
      zero.finish();
    });
  };
  Toy model, other;
  Zero first(model.units(), one_of_two(), {}, {.stage = 1});
  EXPECT_TRUE(contains(twice(first, model), "call hold(true) before all but the last backward"));
  Zero hybrid(other.units(), one_of_two(), one_of_two(), {.stage = 2});
  EXPECT_TRUE(contains(twice(hybrid, other), "call hold(true) before all but the last backward"));
}

TEST(ZeroUse, AnotherStageIsRefused) {
  for (const int stage : {-1, 0, 4}) {
    Toy model;
    const std::string text =
        error_of([&] { Zero zero(model.units(), one_of_two(), {}, {.stage = stage}); });
    EXPECT_TRUE(contains(text, "ZeRO stage " + std::to_string(stage)));
    EXPECT_TRUE(contains(text, "set train.zero to 1, 2 or 3"));
  }
}

TEST(ZeroUse, TwoUnitsOfOneNameAreRefused) {
  EXPECT_TRUE(contains(error_of([] { Zero zero({{"a", {}}, {"a", {}}}, one_of_two()); }),
                       "two units are named \"a\""));
}

TEST(ZeroUse, ADryParameterWithoutValuesIsRefused) {
  std::optional<Toy> model;
  {
    const memory::Instruments dry({.dry = true});
    model.emplace();
  }
  EXPECT_TRUE(contains(error_of([&] { Zero zero(model->units(), one_of_two(), {}, {.stage = 3}); }),
                       "is dry, and no initial values are given"));
}

TEST(ZeroUse, ABackwardPassAfterItsZeroIsRefused) {
  Toy model;
  at::Tensor loss;
  {
    Zero zero(model.units(), one_of_two(), {}, {.stage = 3});
    loss = model.loss(use_batch(), 4, &zero);
  }
  EXPECT_TRUE(contains(error_of([&] { loss.backward(); }), "a Zero that is gone"));
}

}  // namespace
}  // namespace braid
