// SPDX-License-Identifier: BSD-3-Clause
// What ZeRO sends, to the byte, and when.
#include <gtest/gtest.h>

#include <memory>

#include <ATen/core/grad_mode.h>

#include "braid/comm/counting.h"
#include "braid/parallel/zero.h"
#include "parallel/zero_toy.h"
#include "support/ranks.h"

namespace braid {
namespace {

using comm::Kind;
using parallel::Zero;
using parallel::ZeroOptions;
using test::Toy;
using test::ToyOptions;

at::Tensor traffic_batch() { return test::toy_values({4, 6}, "batch"); }

// Bytes of a unit with its padding, one flat for trained weights and one for the others.
struct UnitBytes {
  int64_t trained = 0, frozen = 0;
  int64_t all() const { return trained + frozen; }
};

UnitBytes unit_bytes(const parallel::ZeroUnit& unit, int64_t ranks) {
  UnitBytes elements;
  for (const Param& param : unit.params)
    (param.tensor.requires_grad() ? elements.trained : elements.frozen) += param.tensor.numel();
  const auto padded = [&](int64_t n) { return (n + ranks - 1) / ranks * ranks * 8; };
  return {padded(elements.trained), padded(elements.frozen)};
}

struct TrafficVolume {
  int64_t blocks = 0, root = 0, trained = 0;
};

TrafficVolume volume_of(const Toy& model, int64_t ranks) {
  TrafficVolume volume;
  for (const parallel::ZeroUnit& unit : model.units()) {
    const UnitBytes bytes = unit_bytes(unit, ranks);
    (unit.name.empty() ? volume.root : volume.blocks) += bytes.all();
    volume.trained += bytes.trained;
  }
  return volume;
}

struct TrafficCase {
  int ranks;
  int stage;
  bool keep;
  int64_t passes;
  bool frozen;
};

class ZeroTraffic : public testing::TestWithParam<TrafficCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, ZeroTraffic,
    testing::Values(TrafficCase{2, 1, false, 1, false}, TrafficCase{3, 1, false, 3, true},
                    TrafficCase{3, 2, false, 1, false}, TrafficCase{4, 2, false, 3, true},
                    TrafficCase{2, 3, false, 1, false}, TrafficCase{4, 3, false, 3, true},
                    TrafficCase{3, 3, true, 1, true}, TrafficCase{4, 3, true, 3, false}));

TEST_P(ZeroTraffic, IsThatOfTheFormulas) {
  const TrafficCase& c = GetParam();
  test::on_ranks(c.ranks, [&](comm::Group world) {
    const auto own = std::make_shared<comm::Traffic>();
    Toy model({.width = 7, .hidden = 5, .frozen = c.frozen});
    const TrafficVolume psi = volume_of(model, c.ranks);
    Zero zero(model.units(), comm::Group(comm::counting(world.backend(), own)), {},
              {.stage = c.stage, .keep_gathered = c.keep});
    for (int step = 0; step < 2; ++step) {  // the first as the others
      own->clear();
      for (int64_t pass = 0; pass < c.passes; ++pass) {
        zero.hold(pass + 1 < c.passes);
        model.loss(traffic_batch(), 4, &zero).backward();
      }
      zero.finish();
      test::toy_sgd(zero.params(), 0.1);
      zero.publish();
      const int64_t reduced = psi.trained * (c.stage == 1 ? 1 : c.passes);
      const int64_t gathered =
          c.stage < 3 ? psi.trained : c.passes * (psi.root + psi.blocks * (c.keep ? 1 : 2));
      EXPECT_EQ(own->bytes(Kind::reduce_scatter), reduced);
      EXPECT_EQ(own->bytes(Kind::all_gather), gathered);
      EXPECT_DOUBLE_EQ(own->wire_bytes(),
                       static_cast<double>(reduced + gathered) * (c.ranks - 1) / c.ranks);
    }
  });
}

TEST(ZeroTraffic, HybridAddsTheSumOfThePieces) {
  test::on_ranks(4, [&](comm::Group world) {
    const auto own = std::make_shared<comm::Traffic>();
    const comm::Group counted(comm::counting(world.backend(), own));
    const int r = world.rank();
    const comm::Group shard = counted.split({r / 2 * 2, r / 2 * 2 + 1}, "shard");
    const comm::Group replicas = counted.split({r % 2, r % 2 + 2}, "replicas");
    for (int stage = 1; stage <= 3; ++stage) {
      Toy model({.width = 7, .hidden = 5});
      const TrafficVolume psi = volume_of(model, 2);
      Zero zero(model.units(), shard, replicas, {.stage = stage});
      own->clear();
      for (int64_t pass = 0; pass < 3; ++pass) {
        zero.hold(pass < 2);
        model.loss(traffic_batch(), 4, &zero).backward();
      }
      zero.finish();
      test::toy_sgd(zero.params(), 0.1);
      zero.publish();
      EXPECT_EQ(own->bytes(Kind::all_reduce), psi.trained / 2);  // once, whatever the passes
      EXPECT_EQ(own->bytes(Kind::reduce_scatter), psi.trained * (stage == 1 ? 1 : 3));
      EXPECT_EQ(own->bytes(Kind::all_gather),
                stage < 3 ? psi.trained : 3 * (psi.root + 2 * psi.blocks));
      for (const comm::TrafficEntry& entry : own->entries())
        EXPECT_EQ(entry.group, entry.kind == Kind::all_reduce ? "replicas" : "shard");
    }
  });
}

TEST(ZeroTraffic, NarrowSumsAreHalfTheBytes) {
  test::on_ranks(2, [&](comm::Group world) {
    for (int stage = 1; stage <= 3; ++stage) {
      const auto own = std::make_shared<comm::Traffic>();
      Toy model;
      Zero zero(model.units(), comm::Group(comm::counting(world.backend(), own)), {},
                {.stage = stage, .reduce = c10::kFloat});
      model.loss(traffic_batch(), 4, &zero).backward();
      zero.finish();
      EXPECT_EQ(own->bytes(Kind::reduce_scatter), volume_of(model, 2).trained / 2);
    }
  });
}

// In the second step, when the order is known.
TEST(ZeroTraffic, GathersABlockAheadAndSumsWhileBackwardRuns) {
  test::on_ranks(2, [&](comm::Group world) {
    const auto own = std::make_shared<comm::Traffic>();
    Toy model({.blocks = 4});
    Zero zero(model.units(), comm::Group(comm::counting(world.backend(), own)), {}, {.stage = 3});
    own->clear();
    std::vector<int64_t> forward, backward;  // gathers begun when a block runs
    int64_t sums = -1;
    const auto step = [&] {
      const at::Tensor y = zero.run("", traffic_batch(), [&](const at::Tensor& x) {
        at::Tensor z = at::matmul(x, model.find("embed.weight"));
        for (int64_t i = 0; i < 4; ++i)
          z = zero.run("blocks." + std::to_string(i), z, [&, i](const at::Tensor& in) {
            forward.push_back(own->calls(Kind::all_gather));
            at::Tensor out = model.block(i, in);
            out.register_hook(
                [&](const at::Tensor&) { backward.push_back(own->calls(Kind::all_gather)); });
            return out;
          });
        z.register_hook([&](const at::Tensor&) {
          backward.push_back(own->calls(Kind::all_gather));  // while root weights work
        });
        return z.mul(model.find("gain"));
      });
      model.find("embed.weight").register_hook([&](const at::Tensor&) {
        sums = own->calls(Kind::reduce_scatter);  // the last gradient to come
      });
      y.sum().backward();
      zero.finish();
    };
    step();
    EXPECT_EQ(forward, (std::vector<int64_t>{2, 3, 4, 5}));  // root and blocks as they come
    forward.clear();
    backward.clear();
    own->clear();
    sums = -1;
    step();
    EXPECT_EQ(forward, (std::vector<int64_t>{3, 4, 5, 5}));
    EXPECT_EQ(backward, (std::vector<int64_t>{6, 7, 8, 9, 9}));
    EXPECT_EQ(sums, 4);  // those of all blocks
  });
}

TEST(ZeroTraffic, StagesOneAndTwoSumWhileBackwardRuns) {
  test::on_ranks(2, [&](comm::Group world) {
    for (int stage = 1; stage <= 2; ++stage) {
      const auto own = std::make_shared<comm::Traffic>();
      Toy model;
      Zero zero(model.units(), comm::Group(comm::counting(world.backend(), own)), {},
                {.stage = stage});
      int64_t sums = -1;
      model.find("embed.weight").register_hook([&](const at::Tensor&) {
        sums = own->calls(Kind::reduce_scatter);
      });
      model.loss(traffic_batch(), 4).backward();  // without run()
      EXPECT_EQ(sums, 3);
      zero.finish();
      EXPECT_EQ(own->calls(Kind::reduce_scatter), 4);
    }
  });
}

}  // namespace
}  // namespace braid
