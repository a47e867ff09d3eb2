// SPDX-License-Identifier: BSD-3-Clause
// ZeRO to the bit: sums of two ranks have one value, so nothing may differ.
#include <gtest/gtest.h>

#include <memory>

#include <ATen/core/grad_mode.h>

#include "braid/parallel/replicate.h"
#include "braid/parallel/zero.h"
#include "parallel/zero_toy.h"
#include "support/ranks.h"

namespace braid {
namespace {

using parallel::Replicate;
using parallel::Zero;
using parallel::ZeroOptions;
using test::Toy;
using test::ToyOptions;

at::Tensor half_batch(int rank) { return test::toy_values({8, 6}, "batch").narrow(0, 4 * rank, 4); }

const std::vector<ZeroOptions>& zero_stages() {
  static const std::vector<ZeroOptions> all = {
      {.stage = 1}, {.stage = 2}, {.stage = 3}, {.stage = 3, .keep_gathered = true}};
  return all;
}

TEST(ZeroBits, TwoRanksAreTwoHalvesAddedOnce) {
  const ToyOptions options{.width = 7, .tied = true};
  Toy first(options), second(options);
  first.loss(half_batch(0), 8).backward();
  second.loss(half_batch(1), 8).backward();
  test::on_ranks(2, [&](comm::Group world) {
    for (ZeroOptions stage : zero_stages()) {
      stage.average = false;
      Toy model(options);
      Zero zero(model.units(), world, {}, stage);
      model.loss(half_batch(world.rank()), 8, &zero).backward();
      zero.finish();
      for (const Param& piece : zero.params())
        EXPECT_TRUE(piece.tensor.grad().reshape({-1}).equal(test::toy_piece(
            first.find(piece.name).grad().add(second.find(piece.name).grad()), piece)))
            << piece.name << ", stage " << stage.stage;
    }
  });
}

TEST(ZeroBits, SeveralStepsAreThoseOfReplicas) {
  test::on_ranks(2, [&](comm::Group world) {
    Toy whole({.width = 5});
    Replicate replicas(whole.params, world);
    EXPECT_EQ(replicas.owners().size(), 1);
    std::vector<Toy> models;
    std::vector<std::unique_ptr<Zero>> zeros;
    for (const ZeroOptions& stage : zero_stages()) {
      models.emplace_back(ToyOptions{.width = 5});
      zeros.push_back(std::make_unique<Zero>(models.back().units(), world, comm::Group(), stage));
    }
    const auto step = [&](const Toy& model, parallel::Sync& sync, Zero* runner) {
      model.loss(half_batch(world.rank()), 4, runner).backward();
      sync.finish();
      const at::NoGradGuard no_grad;
      test::toy_sgd(sync.params(), 0.05);
      for (const Param& param : sync.params()) param.tensor.mutable_grad().reset();
      sync.publish();
    };
    for (int i = 0; i < 4; ++i) {
      step(whole, replicas, nullptr);
      for (size_t z = 0; z < zeros.size(); ++z) {
        step(models[z], *zeros[z], zeros[z].get());
        for (const Param& piece : zeros[z]->params())
          EXPECT_TRUE(
              piece.tensor.reshape({-1}).equal(test::toy_piece(whole.find(piece.name), piece)))
              << piece.name << " after step " << i << " of " << z;
      }
    }
  });
}

TEST(ZeroBits, WideSumsOfNarrowGradients) {
  const ToyOptions options{.width = 7, .type = c10::TensorOptions().dtype(c10::kBFloat16)};
  const auto batch = [](int rank) { return half_batch(rank).to(c10::kBFloat16); };
  Toy first(options), second(options);
  first.loss(batch(0), 8).backward();
  second.loss(batch(1), 8).backward();
  test::on_ranks(2, [&](comm::Group world) {
    for (ZeroOptions stage : zero_stages()) {
      stage.reduce = c10::kFloat;
      Toy model(options);
      Zero zero(model.units(), world, {}, stage);
      model.loss(batch(world.rank()), 8, &zero).backward();
      zero.finish();
      for (const Param& piece : zero.params()) {
        const at::Tensor wanted = first.find(piece.name)
                                      .grad()
                                      .to(c10::kFloat)
                                      .div(2)
                                      .add(second.find(piece.name).grad().to(c10::kFloat).div(2));
        EXPECT_EQ(piece.tensor.grad().scalar_type(), c10::kFloat);
        EXPECT_TRUE(piece.tensor.grad().reshape({-1}).equal(test::toy_piece(wanted, piece)))
            << piece.name << ", stage " << stage.stage;
      }
    }
  });
}

TEST(ZeroBits, AllRanksStartWithTheWeightsOfTheFirst) {
  const Toy wanted;
  test::on_ranks(4, [&](comm::Group world) {
    const int r = world.rank();
    const comm::Group shard = world.split({r / 2 * 2, r / 2 * 2 + 1}, "shard");
    const comm::Group replicas = world.split({r % 2, r % 2 + 2}, "replicas");
    for (const ZeroOptions& stage : zero_stages()) {
      Toy model;
      {
        const at::NoGradGuard no_grad;
        for (const Param& param : model.params) param.tensor.add_(r);
      }
      Zero zero(model.units(), shard, replicas, stage);
      for (const Param& piece : zero.params())
        EXPECT_TRUE(
            piece.tensor.reshape({-1}).equal(test::toy_piece(wanted.find(piece.name), piece)));
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(model.forward(half_batch(0), &zero).equal(wanted.forward(half_batch(0))));
    }
  });
}

// Small whole numbers: every sum is exact, so the number of ranks and their grouping do not show.
TEST(ZeroBits, WholeNumbersInAnyLayout) {
  const auto numbers = [](at::IntArrayRef sizes, const std::string& name) {
    return test::toy_values(sizes, name).mul(6).round();
  };
  const auto made = [&] {
    return std::vector<Param>{{"a", numbers({6, 5}, "a").requires_grad_()},
                              {"block.b", numbers({5, 3}, "b").requires_grad_()}};
  };
  const auto loss = [](const std::vector<Param>& params, const at::Tensor& x, Zero* zero) {
    return run_block(zero, "", x,
                     [&](const at::Tensor& in) {
                       return run_block(
                           zero, "block", at::matmul(in, params[0].tensor),
                           [&](const at::Tensor& y) { return at::matmul(y, params[1].tensor); });
                     })
        .sum();
  };
  const at::Tensor x = numbers({8, 6}, "x");
  const std::vector<Param> alone = made();
  for (int step = 0; step < 2; ++step) {
    for (const Param& param : alone) param.tensor.mutable_grad().reset();
    loss(alone, x, nullptr).backward();
    const at::NoGradGuard no_grad;
    test::toy_sgd(alone, 0.5);
  }
  test::on_ranks(4, [&](comm::Group world) {
    const int r = world.rank();
    const comm::Group pair = world.split({r / 2 * 2, r / 2 * 2 + 1}, "shard");
    const comm::Group across = world.split({r % 2, r % 2 + 2}, "replicas");
    for (const bool hybrid : {false, true})
      for (ZeroOptions stage : zero_stages()) {
        stage.average = false;
        const std::vector<Param> params = made();
        Zero zero(parallel::units_of(params, {"block"}), hybrid ? pair : world,
                  hybrid ? across : comm::Group(), stage);
        for (int step = 0; step < 2; ++step) {
          loss(params, x.narrow(0, 2 * r, 2), &zero).backward();
          zero.finish();
          const at::NoGradGuard no_grad;
          test::toy_sgd(zero.params(), 0.5);
          zero.publish();
        }
        for (const Param& piece : zero.params())
          EXPECT_TRUE(
              piece.tensor.equal(test::toy_piece(alone[piece.name == "a" ? 0 : 1].tensor, piece)))
              << piece.name << ", stage " << stage.stage << ", hybrid " << hybrid;
      }
  });
}

// A state that is loaded into the pieces reaches the whole model, frozen weights too.
TEST(ZeroBits, PublishedPiecesAreTheModel) {
  test::on_ranks(3, [&](comm::Group world) {
    for (const ZeroOptions& stage : zero_stages()) {
      Toy model({.width = 5, .frozen = true}), other({.width = 5, .frozen = true});
      const at::NoGradGuard no_grad;
      for (const Param& param : other.params) param.tensor.mul_(3);
      Zero zero(model.units(), world, {}, stage);
      model.forward(half_batch(0), &zero);  // gathers the old weights
      for (const Param& piece : zero.params())
        piece.tensor.copy_(
            test::toy_piece(other.find(piece.name), piece).view(piece.tensor.sizes()));
      zero.publish();
      EXPECT_TRUE(model.forward(half_batch(0), &zero).equal(other.forward(half_batch(0))))
          << "stage " << stage.stage;
    }
  });
}

// Which weights a rank uses may depend on its samples: the others do not wait for it.
TEST(ZeroBits, RanksThatUseDifferentWeights) {
  const auto forward = [](const Toy& model, const at::Tensor& x, bool spare, Zero* zero) {
    return run_block(zero, "", x, [&](const at::Tensor& in) {
      at::Tensor y = at::matmul(in, model.find("embed.weight"));
      for (int64_t i = 0; i < 3; ++i)
        y = run_block(zero, "blocks." + std::to_string(i), y, [&](const at::Tensor& inner) {
          const at::Tensor z = model.block(i, inner);
          return spare && i == 1 ? z.add(model.find("blocks.1.spare").sum()) : z;
        });
      y = y.mul(model.find("gain"));
      return spare ? y.mul(model.find("spare").sum()) : y;
    });
  };
  const ToyOptions options{.width = 7, .unused = true};
  Toy first(options), second(options);
  for (int pass = 0; pass < 2; ++pass) {
    forward(first, half_batch(0), pass == 1, nullptr).sum().backward();
    forward(second, half_batch(1), pass == 0, nullptr).sum().backward();
  }
  test::on_ranks(2, [&](comm::Group world) {
    for (ZeroOptions stage : zero_stages()) {
      stage.average = false;
      Toy model(options);
      Zero zero(model.units(), world, {}, stage);
      for (int pass = 0; pass < 2; ++pass) {
        zero.hold(pass == 0);
        forward(model, half_batch(world.rank()), pass != world.rank(), &zero).sum().backward();
      }
      zero.finish();
      for (const Param& piece : zero.params()) {
        at::Tensor wanted = at::zeros(piece.tensor.sizes(), piece.tensor.options());
        for (const Toy* toy : {&first, &second})
          if (toy->find(piece.name).grad().defined())
            wanted = wanted.add(
                test::toy_piece(toy->find(piece.name).grad(), piece).view(wanted.sizes()));
        EXPECT_TRUE(piece.tensor.grad().allclose(wanted, 1e-12, 1e-13))
            << piece.name << ", stage " << stage.stage << ", keep " << stage.keep_gathered;
      }
    }
  });
}

}  // namespace
}  // namespace braid
