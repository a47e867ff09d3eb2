// SPDX-License-Identifier: BSD-3-Clause
// Parameters of one model whose gradients are summed over different ranks.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <memory>

#include "braid/comm/counting.h"
#include "braid/parallel/divergence.h"
#include "braid/parallel/replicate.h"
#include "braid/parallel/syncs.h"
#include "braid/parallel/zero.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using comm::Kind;
using parallel::Replicate;
using parallel::Zero;

at::Tensor mixed_values(at::IntArrayRef sizes, uint64_t seed) {
  return test::drawn(sizes, seed, "mixed");
}

// Two ranks of data x two of experts. The experts of the second one are larger.
struct MixedRanks {
  explicit MixedRanks(comm::Group given) : world(std::move(given)) {
    const int r = world.rank();
    expert = r % 2;
    data = r / 2;
    experts = world.split({expert, expert + 2}, "experts");
  }
  parallel::ReplicasOf replicas() const {
    return [this](const Param& p) { return p.expert ? experts : dense(p); };
  }
  comm::Group dense(const Param& p) const { return p.name == "alone" ? comm::Group() : world; }
  comm::Group world, experts;
  int expert = 0, data = 0;
};

struct Mixed {
  explicit Mixed(int expert) : expert_rank(expert) {
    for (int layer = 0; layer < 3; ++layer) {
      const std::string at = "layers." + std::to_string(layer);
      params.push_back({at + ".weight", mixed_values({4, 5}, 1).requires_grad_()});
      Param own{at + ".experts", mixed_values({2 + expert, 3}, 2).requires_grad_()};
      own.expert = true;
      own.piece = {{5, 3}, {{0, {{expert * 2, expert * 2 + 2 + expert}}}}, 0};
      params.push_back(own);
    }
    params.push_back({"alone", mixed_values({7}, 3).requires_grad_()});
  }
  // What rank `rank` adds to the gradient of parameter i.
  at::Tensor part(size_t i, int rank) const {
    return mixed_values(params[i].tensor.sizes(), 100 + 10 * i + static_cast<size_t>(rank));
  }
  at::Tensor loss(int rank, double factor = 1) const {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < params.size(); ++i)
      sum = sum.add(params[i].tensor.mul(part(i, rank)).sum().mul(factor));
    return sum;
  }
  at::Tensor wanted(size_t i, int rank) const {
    at::Tensor sum = at::zeros_like(params[i].tensor);
    for (int other = 0; other < 4; ++other)
      if (params[i].name == "alone" ? other == rank : !params[i].expert || other % 2 == expert_rank)
        sum.add_(part(i, other));
    return sum;
  }
  int64_t bytes(bool expert) const {
    int64_t count = 0;
    for (const Param& p : params)
      if (p.name != "alone" && p.expert == expert) count += p.tensor.numel() * 8;
    return count;
  }
  std::vector<Param> params;
  int expert_rank;
};

int64_t bytes_of_group(const comm::Traffic& traffic, const std::string& group, Kind kind) {
  int64_t bytes = 0;
  for (const comm::TrafficEntry& entry : traffic.entries())
    if (entry.group == group && entry.kind == kind) bytes += entry.bytes;
  return bytes;
}

class ReplicateGroups : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(BucketBytes, ReplicateGroups, testing::Values(1, 200, 1 << 20));

TEST_P(ReplicateGroups, SumEachParameterOverItsOwn) {
  test::on_ranks(4, [&](comm::Group world) {
    const auto own = std::make_shared<comm::Traffic>();
    const MixedRanks ranks(comm::Group(comm::counting(world.backend(), own)));
    const Mixed model(ranks.expert);
    Replicate sync(model.params, ranks.replicas(), ranks.world,
                   {.bucket_bytes = GetParam(), .average = false, .find_unused = true});
    EXPECT_EQ(sync.owners().size(), 4);
    EXPECT_TRUE(sync.params()[1].expert);
    EXPECT_EQ(sync.params()[1].piece, model.params[1].piece);
    for (int step = 0; step < 3; ++step) {
      own->clear();
      for (const Param& param : model.params) param.tensor.mutable_grad().reset();
      model.loss(world.rank()).backward();
      sync.finish();
      for (size_t i = 0; i < model.params.size(); ++i)
        EXPECT_TRUE(
            model.params[i].tensor.grad().allclose(model.wanted(i, world.rank()), 1e-12, 1e-13))
            << model.params[i].name;
    }
    const int64_t flags = 4 * static_cast<int64_t>(model.params.size());  // of find_unused
    EXPECT_EQ(bytes_of_group(*own, "world", Kind::all_reduce), model.bytes(false) + flags);
    EXPECT_EQ(bytes_of_group(*own, "experts", Kind::all_reduce), model.bytes(true) + flags);
  });
}

TEST(ReplicateGroups, StartAlikeWithinTheirOwn) {
  test::on_ranks(4, [&](comm::Group world) {
    const MixedRanks ranks(world);
    Mixed model(ranks.expert);
    for (const Param& param : model.params) param.tensor.detach().add_(world.rank());
    const Mixed fresh(ranks.expert);
    const Replicate sync(model.params, ranks.replicas(), ranks.world, {});
    EXPECT_TRUE(model.params[0].tensor.equal(fresh.params[0].tensor));
    EXPECT_TRUE(model.params[1].tensor.equal(fresh.params[1].tensor.add(ranks.expert)));
    EXPECT_TRUE(model.params.back().tensor.equal(fresh.params.back().tensor.add(world.rank())));
  });
}

// What was put into .grad() before the last backward pass is a part of the sum.
TEST(ReplicateGroups, AGradientFromElsewhereCounts) {
  test::on_ranks(2, [&](comm::Group world) {
    for (const bool touched : {true, false}) {
      const at::Tensor tied = mixed_values({3}, 1).requires_grad_();
      const at::Tensor other = mixed_values({3}, 2).requires_grad_();
      Replicate sync({{"tied", tied}, {"other", other}}, world, {.average = false});
      for (int step = 0; step < 2; ++step) {
        tied.mutable_grad().reset();
        sync.hold(true);
        tied.sum().add(other.sum()).backward();
        sync.hold(false);
        tied.mutable_grad().add_(10 * (world.rank() + 1));  // by another stage
        (touched ? tied.sum().add(other.sum()) : other.sum()).backward();
        sync.finish();
        EXPECT_TRUE(tied.grad().equal(at::full({3}, touched ? 34.0 : 32.0, at::kDouble)));
      }
    }
  });
}

void expect_zero_sums(const MixedRanks& ranks, int stage, const comm::Group& shard,
                      const parallel::ReplicasOf& replicas) {
  Mixed model(ranks.expert);
  const Mixed fresh(ranks.expert);
  model.params.pop_back();  // that of nobody else
  Zero zero({{"", model.params}}, shard, replicas, ranks.world, {.stage = stage, .average = false});
  for (int step = 0; step < 2; ++step) {
    for (int pass = 0; pass < 2; ++pass) {
      zero.hold(pass == 0);
      zero.run("", {}, [&](const at::Tensor&) { return model.loss(ranks.world.rank()); })
          .backward();
    }
    zero.finish();
    for (const Param& piece : zero.params())
      for (size_t i = 0; i < fresh.params.size(); ++i) {
        if (fresh.params[i].name != piece.name) continue;
        EXPECT_EQ(piece.expert, fresh.params[i].expert);
        EXPECT_EQ(piece.piece.cuts, fresh.params[i].piece.cuts);
        EXPECT_EQ(piece.piece.whole, fresh.params[i].is_whole()
                                         ? fresh.params[i].tensor.sizes().vec()
                                         : fresh.params[i].piece.whole);
        const auto part = [&](const at::Tensor& x) {
          return x.reshape({-1}).narrow(0, piece.piece.first, piece.tensor.numel());
        };
        EXPECT_TRUE(part(fresh.params[i].tensor.detach()).equal(piece.tensor.detach()));
        EXPECT_TRUE(piece.tensor.grad().allclose(part(fresh.wanted(i, ranks.world.rank())).mul(2),
                                                 1e-12, 1e-13))
            << piece.name << " in stage " << stage;
      }
  }
}

TEST(ZeroGroups, SumEachParameterOverItsOwn) {
  test::on_ranks(4, [&](comm::Group world) {
    const MixedRanks ranks(world);
    const int r = world.rank();
    for (int stage = 1; stage <= 3; ++stage) {
      Mixed model(ranks.expert);
      model.params.pop_back();
      const auto own = std::make_shared<comm::Traffic>();
      const comm::Group counted(comm::counting(world.backend(), own));
      const comm::Group shard = counted.split({r % 2, r % 2 + 2}, "shard");
      const comm::Group across = counted.split({r / 2 * 2, r / 2 * 2 + 1}, "across");
      Zero zero({{"", model.params}}, shard,
                [&](const Param& p) { return p.expert ? comm::Group() : across; }, counted,
                {.stage = stage, .average = false});
      own->clear();
      zero.run("", {}, [&](const at::Tensor&) { return model.loss(r); }).backward();
      zero.finish();
      const auto padded = [](int64_t bytes) { return (bytes / 8 + 1) / 2 * 16; };
      EXPECT_EQ(bytes_of_group(*own, "across", Kind::all_reduce), padded(model.bytes(false)) / 2);
      EXPECT_EQ(bytes_of_group(*own, "shard", Kind::reduce_scatter),
                padded(model.bytes(false)) + padded(model.bytes(true)));
      for (const Param& piece : zero.params())
        for (size_t i = 0; i < model.params.size(); ++i)
          if (model.params[i].name == piece.name) {
            EXPECT_TRUE(piece.tensor.grad().allclose(
                model.wanted(i, r).reshape({-1}).narrow(0, piece.piece.first, piece.tensor.numel()),
                1e-12, 1e-13));
          }
    }
  });
}

// The shard axis is that of data: dense parameters have replicas on the other expert rank.
TEST(ZeroGroups, PiecesOfBoxesCountInTheBox) {
  test::on_ranks(4, [&](comm::Group world) {
    const MixedRanks ranks(world);
    const int r = world.rank();
    const comm::Group pair = world.split({r / 2 * 2, r / 2 * 2 + 1}, "across");
    const auto replicas = [&](const Param& p) { return p.expert ? comm::Group() : pair; };
    for (int stage = 1; stage <= 3; ++stage)
      expect_zero_sums(ranks, stage, ranks.experts, replicas);
  });
}

TEST(DivergenceGroups, EachParameterOverItsOwn) {
  test::on_ranks(4, [&](comm::Group world) {
    const MixedRanks ranks(world);
    Mixed model(ranks.expert);
    parallel::Divergence same(model.params, ranks.replicas(), {.every = 1});
    model.params.back().tensor.detach().add_(world.rank());  // nobody's replica
    model.params[1].tensor.detach().add_(ranks.expert);
    same.step(1);
    if (world.rank() == 3) model.params[3].tensor.detach().add_(1);
    if (ranks.expert == 0) {
      same.step(2);  // its own replicas are alike
      return;
    }
    const std::string text = test::error_of([&] { same.step(2); });
    EXPECT_TRUE(test::contains(text, "layers.1.experts on rank 3 is not what rank 1 has"));
    EXPECT_TRUE(test::contains(text, "all were alike at step 1"));
  });
}

}  // namespace
}  // namespace braid
