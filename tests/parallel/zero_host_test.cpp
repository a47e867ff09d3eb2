// SPDX-License-Identifier: BSD-3-Clause
// ZeRO-3 with its pieces on the host: blocks visit the device, the bits stay.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include "braid/core/error.h"
#include "braid/memory/instruments.h"
#include "braid/parallel/zero.h"
#include "parallel/zero_toy.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using memory::Instruments;
using memory::Ledger;
using parallel::Zero;
using test::Toy;
using test::ToyOptions;

at::Tensor visit_batch(const ToyOptions& options, int64_t rank) {
  const at::Tensor x = at::empty({4, 6}, options.type);
  test::toy_initial("batch" + std::to_string(rank), x, 0);
  return x;
}

ToyOptions visiting_toy() {
  ToyOptions options = {.width = 7, .hidden = 5, .blocks = 4};
  options.frozen = options.tied = true;
  return options;
}

void visit_steps(const ToyOptions& options, const Toy& model, Zero& zero, int64_t rank) {
  for (int step = 0; step < 3; ++step) {
    for (int pass = 0; pass < 2; ++pass) {
      zero.hold(pass == 0);
      model.loss(visit_batch(options, rank), 8, &zero).backward();
    }
    zero.finish();
    const at::NoGradGuard no_grad;
    test::toy_sgd(zero.params(), 0.05);
    zero.publish();
  }
}

void expect_same_pieces(const Zero& a, const Zero& b) {
  ASSERT_EQ(a.params().size(), b.params().size());
  for (size_t i = 0; i < a.params().size(); ++i)
    EXPECT_TRUE(a.params()[i].tensor.equal(b.params()[i].tensor)) << a.params()[i].name;
}

TEST(ZeroOnTheHost, UpdatesTheSameBits) {
  for (const int ranks : {2, 3})
    test::on_ranks(ranks, [](comm::Group world) {
      const ToyOptions options = visiting_toy();
      Toy plain(options), model(options);
      Zero there(plain.units(), world, {}, {.stage = 3});
      Zero host(model.units(), world, {}, {.stage = 3, .host = true});
      visit_steps(options, plain, there, world.rank());
      visit_steps(options, model, host, world.rank());
      expect_same_pieces(host, there);
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(model.forward(visit_batch(options, 0), &host)
                      .equal(plain.forward(visit_batch(options, 0), &there)));
    });
}

TEST(ZeroOnTheHost, UpdatesTheSameBitsOfReplicas) {
  test::on_ranks(4, [](comm::Group world) {
    const int rank = world.rank();
    const ToyOptions options = visiting_toy();
    Toy plain(options), model(options);
    const comm::Group shard = world.split({rank / 2 * 2, rank / 2 * 2 + 1}, "shard");
    const comm::Group replicas = world.split({rank % 2, rank % 2 + 2}, "replicas");
    Zero there(plain.units(), shard, replicas, {.stage = 3});
    Zero host(model.units(), shard, replicas, {.stage = 3, .host = true});
    visit_steps(options, plain, there, rank);
    visit_steps(options, model, host, rank);
    expect_same_pieces(host, there);
  });
}

// One rank alone: weights are away from the device while they do not run.
TEST(ZeroOnTheHost, WorksForARankAlone) {
  const ToyOptions options = visiting_toy();
  Toy plain(options), model(options);
  Zero there(plain.units(), {}, {}, {.stage = 3});
  Zero host(model.units(), {}, {}, {.stage = 3, .host = true});
  visit_steps(options, plain, there, 0);
  visit_steps(options, model, host, 0);
  expect_same_pieces(host, there);
  for (const Param& param : model.params) EXPECT_THROW(param.tensor.sum(), c10::Error);
}

// Bytes of one rank: a dry GPU's own memory has no weight between steps.
TEST(ZeroOnTheHost, TheDeviceHasTwoBlocksAtMost) {
  ToyOptions options = {.width = 7, .hidden = 5, .blocks = 5};
  options.type = options.type.device(c10::kCUDA, 0);
  for (const int ranks : {1, 4}) {
    Ledger ledger;
    const Instruments on({.ledger = &ledger, .dry = true});
    Toy model(options);
    int64_t share = 0, root = 0, block = 0;
    for (const parallel::ZeroUnit& unit : model.units()) {
      int64_t elements = 0;
      for (const Param& param : unit.params) elements += param.tensor.numel();
      const int64_t part = (elements + ranks - 1) / ranks * 8;
      share += part;
      (unit.name.empty() ? root : block) = part * ranks;
    }
    const comm::Group shard = ranks == 1 ? comm::Group() : comm::Group(comm::dry(1, ranks));
    Zero zero(model.units(), shard, {}, {.stage = 3, .host = true});
    EXPECT_EQ(ledger.live(memory::cuda()), 0);
    EXPECT_EQ(ledger.live(memory::pinned_host), share);
    for (int step = 0; step < 2; ++step) {
      ledger.begin();
      const memory::Traffic before = zero.traffic();
      model.loss(visit_batch(options, 0), 4, &zero).backward();
      zero.finish();
      int64_t gathered = 0;
      for (const memory::Moment& moment : ledger.timeline(memory::cuda()))
        gathered =
            std::max(gathered, moment.by_kind[static_cast<size_t>(MemoryKind::communication)]);
      EXPECT_EQ(gathered, root + 2 * block);
      // Blocks come up twice, what is in no block once; gradients go down once.
      EXPECT_EQ(zero.traffic().to_device - before.to_device, 2 * share - root / ranks);
      EXPECT_EQ(zero.traffic().to_host - before.to_host, share);
    }
    EXPECT_EQ(ledger.live(memory::cuda()), 0);
    EXPECT_EQ(ledger.live(memory::pinned_host), 2 * share);  // gradients, too
  }
}

TEST(ZeroOnTheHost, ADryStepTakesTheMemoryOfARealOne) {
  for (const int ranks : {1, 4}) {
    const auto run = [&](Ledger& ledger, bool dry) {
      const Instruments on({.ledger = &ledger, .dry = dry});
      const comm::Group shard = ranks == 1 ? comm::Group() : comm::Group(comm::dry(1, ranks));
      const ToyOptions options = visiting_toy();
      Toy model(options);
      Zero zero(model.units(), shard, {}, {.stage = 3, .host = true});
      visit_steps(options, model, zero, 0);
    };
    Ledger real, dry;
    run(real, false);
    run(dry, true);
    EXPECT_GT(dry.highest(memory::cpu), 0);
    EXPECT_EQ(dry.highest(memory::cpu), real.highest(memory::cpu));
    EXPECT_EQ(dry.peak(memory::cpu).by_kind, real.peak(memory::cpu).by_kind);
  }
}

TEST(ZeroOnTheHost, NeedsStageThree) {
  const Toy model(visiting_toy());
  const std::string text =
      test::error_of([&] { Zero(model.units(), {}, {}, {.stage = 2, .host = true}); });
  EXPECT_TRUE(test::contains(text, "parameters on the host with ZeRO stage 2"));
  EXPECT_TRUE(test::contains(text, "train.zero to 3"));
}

}  // namespace
}  // namespace braid
