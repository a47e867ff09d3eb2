// SPDX-License-Identifier: BSD-3-Clause
// Replicas give the gradients of one process on the whole batch.
#include "braid/parallel/replicate.h"

#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "braid/comm/counting.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

at::Tensor drawn(at::IntArrayRef sizes, uint64_t seed) {
  return test::drawn(sizes, seed, "replicate");
}

// Three layers and one weight that only some inputs use.
struct Tiny {
  explicit Tiny(uint64_t seed = 0) {
    const std::vector<std::vector<int64_t>> sizes = {{6, 8}, {8}, {8, 5}, {5}, {5, 1}, {3, 3}};
    for (size_t i = 0; i < sizes.size(); ++i)
      params.push_back({"p" + std::to_string(i), drawn(sizes[i], seed + i).requires_grad_()});
  }

  at::Tensor loss(const at::Tensor& x, bool with_spare = false) const {
    at::Tensor y = at::matmul(x, params[0].tensor).add(params[1].tensor).tanh();
    y = at::matmul(y, params[2].tensor).add(params[3].tensor).tanh();
    y = at::matmul(y, params[4].tensor).mean();
    return with_spare ? y.add(params[5].tensor.sum()) : y;
  }

  std::vector<Param> params;
};

void expect_grads(const Tiny& got, const Tiny& wanted) {
  for (size_t i = 0; i < got.params.size(); ++i) {
    const at::Tensor &a = got.params[i].tensor.grad(), &b = wanted.params[i].tensor.grad();
    ASSERT_EQ(a.defined(), b.defined()) << got.params[i].name;
    if (a.defined())
      EXPECT_TRUE(a.allclose(b, 1e-12, 1e-14)) << got.params[i].name << a.sub(b).abs().max();
  }
}

const at::Tensor& batch() {
  static const at::Tensor x = drawn({12, 6}, 99);
  return x;
}

at::Tensor share(const comm::Group& world) {
  return batch().chunk(world.size())[static_cast<size_t>(world.rank())];
}

struct Case {
  int ranks;
  int64_t bucket_bytes;
};
class Replicas : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Replicas,
                         testing::Values(Case{1, 64}, Case{2, 1}, Case{2, 128}, Case{3, 128},
                                         Case{4, 1 << 20}),
                         [](const auto& info) {
                           return std::to_string(info.param.ranks) + "_ranks_" +
                                  std::to_string(info.param.bucket_bytes);
                         });

TEST_P(Replicas, GiveTheGradientsOfOneProcess) {
  Tiny alone;
  alone.loss(batch()).backward();
  test::on_ranks(GetParam().ranks, [&](comm::Group world) {
    Tiny model;
    parallel::Replicate replicas(model.params, world,
                                 {.bucket_bytes = GetParam().bucket_bytes, .find_unused = true});
    for (int step = 0; step < 3; ++step) {  // the second one with buckets in the observed order
      for (const Param& param : model.params) param.tensor.mutable_grad().reset();
      model.loss(share(world)).backward();
      replicas.finish();
      expect_grads(model, alone);
    }
  });
}

TEST_P(Replicas, AccumulateWithoutTalking) {
  Tiny alone;
  for (int i = 0; i < 3; ++i) alone.loss(batch().mul(i + 1), i == 0).backward();
  test::on_ranks(GetParam().ranks, [&](comm::Group world) {
    const auto traffic = std::make_shared<comm::Traffic>();
    if (world.size() > 1) world = comm::Group(comm::counting(world.backend(), traffic));
    Tiny model;
    parallel::Replicate replicas(model.params, world,
                                 {.bucket_bytes = GetParam().bucket_bytes, .find_unused = true});
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(traffic->calls(comm::Kind::all_reduce), 0);
      replicas.hold(i < 2);
      model.loss(share(world).mul(i + 1), i == 0).backward();
    }
    replicas.finish();
    expect_grads(model, alone);
  });
}

TEST(Replicate, TwoRanksAreBitEqualToTwoHalvesAddedOnce) {
  Tiny first, second;
  first.loss(batch().narrow(0, 0, 6)).div(2).backward();
  second.loss(batch().narrow(0, 6, 6)).div(2).backward();
  test::on_ranks(2, [&](comm::Group world) {
    Tiny model;
    parallel::Replicate replicas(model.params, world, {.average = false, .find_unused = true});
    model.loss(share(world)).div(2).backward();
    replicas.finish();
    for (size_t i = 0; i + 1 < model.params.size(); ++i)
      EXPECT_TRUE(model.params[i].tensor.grad().equal(
          first.params[i].tensor.grad().add(second.params[i].tensor.grad())));
  });
}

TEST(Replicate, SendsEachGradientOnceAndStartsEarly) {
  test::on_ranks(2, [&](comm::Group world) {
    const auto own = std::make_shared<comm::Traffic>();
    Tiny model;
    parallel::Replicate replicas(model.params, comm::Group(comm::counting(world.backend(), own)),
                                 {.bucket_bytes = 64, .same_start = false});
    int64_t bytes = 0, started_before_the_end = -1;
    for (const Param& param : model.params) bytes += param.tensor.numel() * 8;
    model.params[0].tensor.register_hook([&](const at::Tensor&) {  // the last gradient to come
      started_before_the_end = own->calls(comm::Kind::all_reduce);
    });
    model.loss(share(world), true).backward();
    EXPECT_EQ(started_before_the_end, 0) << "before the order is known";
    replicas.finish();
    EXPECT_EQ(own->bytes(comm::Kind::all_reduce), bytes);
    const int64_t calls = own->calls(comm::Kind::all_reduce);
    for (const Param& param : model.params) param.tensor.mutable_grad().reset();
    model.loss(share(world), true).backward();
    replicas.finish();
    EXPECT_GE(started_before_the_end, calls + 2);
    EXPECT_EQ(own->bytes(comm::Kind::all_reduce), 2 * bytes);
  });
}

TEST(Replicate, GradientsAreViewsOfBuckets) {
  test::on_ranks(2, [&](comm::Group world) {
    Tiny model;
    parallel::Replicate replicas(model.params, world);
    model.loss(share(world), true).backward();
    replicas.finish();
    for (const Param& param : model.params)
      EXPECT_TRUE(param.tensor.grad().is_alias_of(model.params[0].tensor.grad()));
  });
}

TEST(Replicate, AllRanksStartWithTheWeightsOfTheFirst) {
  const Tiny wanted(0);
  test::on_ranks(3, [&](comm::Group world) {
    Tiny model(static_cast<uint64_t>(100 * world.rank()));
    const parallel::Replicate replicas(model.params, world);
    for (size_t i = 0; i < model.params.size(); ++i)
      EXPECT_TRUE(model.params[i].tensor.equal(wanted.params[i].tensor));
  });
}

TEST(Replicate, AParameterThatOneRankUsesHasAGradientOnAll) {
  test::on_ranks(2, [&](comm::Group world) {
    Tiny model;
    parallel::Replicate replicas(model.params, world, {.find_unused = true});
    model.loss(share(world), /*with_spare=*/world.rank() == 1).backward();
    replicas.finish();
    EXPECT_TRUE(model.params[5].tensor.grad().equal(at::full({3, 3}, 0.5, at::kDouble)));
  });
}

TEST(Replicate, HalfTheBytesOnTheWire) {
  test::on_ranks(2, [&](comm::Group world) {
    const auto own = std::make_shared<comm::Traffic>();
    Tiny model, exact;
    parallel::Replicate narrow(model.params, comm::Group(comm::counting(world.backend(), own)),
                               {.same_start = false, .wire = at::kFloat});
    model.loss(share(world), true).backward();
    narrow.finish();
    int64_t bytes = 0;
    for (const Param& param : model.params) bytes += param.tensor.numel() * 4;
    EXPECT_EQ(own->bytes(comm::Kind::all_reduce), bytes);
    exact.loss(batch(), true).backward();
    EXPECT_TRUE(model.params[0].tensor.grad().allclose(exact.params[0].tensor.grad(), 1e-5, 1e-7));
  });
}

TEST(Replicate, ASecondBackwardWithoutHoldIsRefused) {
  Tiny model;
  parallel::Replicate alone(model.params, comm::Group());
  model.loss(batch()).backward();
  const std::string text = test::error_of([&] { model.loss(batch()).backward(); });
  EXPECT_TRUE(test::contains(text, "call hold() before all but the last backward pass"));
}

TEST(Replicate, TakesItsHooksOff) {
  Tiny model;
  {
    const parallel::Replicate gone(model.params, comm::Group());
  }
  model.loss(batch()).backward();
  model.loss(batch()).backward();
}

}  // namespace
}  // namespace braid
