// SPDX-License-Identifier: BSD-3-Clause
// What ZeRO keeps in memory, to the byte: the table of the paper with its padding.
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "braid/core/dry.h"
#include "braid/memory/instruments.h"
#include "braid/parallel/zero.h"
#include "parallel/zero_toy.h"
#include "support/ranks.h"

namespace braid {
namespace {

using memory::Instruments;
using memory::Ledger;
using parallel::Zero;
using parallel::ZeroOptions;
using test::Toy;
using test::ToyOptions;

// The engine counts devices at its first backward pass: here in a dry run, for
// OnADeviceThatIsNotThere.
class DryFirst final : public testing::Environment {
  void SetUp() override {
    Ledger ledger;
    const Instruments on({.ledger = &ledger, .dry = true});
    const at::Tensor x = at::zeros({1}).requires_grad_();
    x.sum().backward();
  }
};
const testing::Environment* const dry_first = testing::AddGlobalTestEnvironment(new DryFirst);

constexpr int zero_ranks = 4;
comm::Group one_of_four() { return comm::Group(comm::dry(1, zero_ranks)); }  // takes no scratch

int64_t share_elements(const parallel::ZeroUnit& unit) {
  int64_t elements = 0;
  for (const Param& param : unit.params) elements += param.tensor.numel();
  return (elements + zero_ranks - 1) / zero_ranks;
}

struct ZeroSizes {  // bytes
  int64_t share = 0, whole = 0, root = 0, block = 0;
};

ZeroSizes sizes_of(const Toy& model) {
  ZeroSizes sizes;
  for (const parallel::ZeroUnit& unit : model.units()) {
    const int64_t share = share_elements(unit) * 8;
    sizes.share += share;
    sizes.whole += share * zero_ranks;
    (unit.name.empty() ? sizes.root : sizes.block) = share * zero_ranks;
  }
  return sizes;
}

int64_t bytes_now(const Ledger& ledger, MemoryKind kind) {
  return ledger.timeline(memory::cpu).back().by_kind[static_cast<size_t>(kind)];
}

int64_t most_bytes(const Ledger& ledger, MemoryKind kind) {
  int64_t bytes = 0;
  for (const memory::Moment& moment : ledger.timeline(memory::cpu))
    bytes = std::max(bytes, moment.by_kind[static_cast<size_t>(kind)]);
  return bytes;
}

at::Tensor odd_batch(const ToyOptions& options) {
  const at::Tensor x = at::empty({4, 6}, options.type);
  test::toy_initial("batch", x, 0);
  return x;
}

// Shapes that do not divide by the ranks.
ToyOptions odd_toy() { return {.width = 7, .hidden = 5, .blocks = 5}; }

TEST(ZeroMemory, StatesAreThoseOfTheTable) {
  for (int stage = 1; stage <= 3; ++stage) {
    Ledger ledger;
    const Instruments on({.ledger = &ledger});
    Toy model(odd_toy());
    const ZeroSizes sizes = sizes_of(model);
    Zero zero(model.units(), one_of_four(), {}, {.stage = stage});
    EXPECT_EQ(bytes_now(ledger, MemoryKind::parameter), stage < 3 ? sizes.whole : sizes.share);
    EXPECT_EQ(ledger.live(memory::cpu), stage < 3 ? sizes.whole : sizes.share);  // nothing else
    for (int step = 0; step < 2; ++step) {
      model.loss(odd_batch(odd_toy()), 4, &zero).backward();
      zero.finish();
    }
    EXPECT_EQ(bytes_now(ledger, MemoryKind::parameter), stage < 3 ? sizes.whole : sizes.share);
    EXPECT_EQ(bytes_now(ledger, MemoryKind::gradient), stage < 2 ? sizes.whole : sizes.share);
    EXPECT_EQ(bytes_now(ledger, MemoryKind::communication), 0);
    test::toy_sgd(zero.params(), 0.1);
    for (const Param& piece : zero.params()) piece.tensor.mutable_grad().reset();
    zero.publish();
    EXPECT_EQ(bytes_now(ledger, MemoryKind::parameter), stage < 3 ? sizes.whole : sizes.share);
  }
}

TEST(ZeroMemory, NeverMoreThanTwoBlocksBesideTheRoot) {
  Ledger ledger;
  Toy model(odd_toy());
  const ZeroSizes sizes = sizes_of(model);
  const Instruments on({.ledger = &ledger});
  Zero zero(model.units(), one_of_four(), {}, {.stage = 3});
  for (int step = 0; step < 3; ++step) {
    ledger.begin();
    zero.hold(step == 0);
    model.loss(odd_batch(odd_toy()), 4, &zero).backward();
    EXPECT_EQ(most_bytes(ledger, MemoryKind::communication),
              sizes.root + 2 * sizes.block + (step == 1 ? sizes.block / zero_ranks : 0))
        << step;  // the second pass of a step has a sum to add, besides
    // A block's whole gradients are on their way while those of the next come.
    EXPECT_LE(most_bytes(ledger, MemoryKind::gradient), sizes.share + 2 * sizes.block + sizes.root);
    if (step > 0) zero.finish();
  }
  ledger.begin();
  {
    const at::NoGradGuard no_grad;
    model.forward(odd_batch(odd_toy()), &zero);
  }
  EXPECT_EQ(most_bytes(ledger, MemoryKind::communication), sizes.root + 2 * sizes.block);
  EXPECT_EQ(bytes_now(ledger, MemoryKind::communication), 0);
}

TEST(ZeroMemory, KeptBlocksAreThereUntilTheirGradientsAreTaken) {
  Ledger ledger;
  Toy model(odd_toy());
  const ZeroSizes sizes = sizes_of(model);
  const Instruments on({.ledger = &ledger});
  Zero zero(model.units(), one_of_four(), {}, {.stage = 3, .keep_gathered = true});
  const at::Tensor loss = model.loss(odd_batch(odd_toy()), 4, &zero);
  EXPECT_EQ(bytes_now(ledger, MemoryKind::communication), sizes.whole);
  loss.backward();
  EXPECT_EQ(bytes_now(ledger, MemoryKind::communication), 0);  // before finish()
}

// Takes no memory of its own.
void quiet_initial(const std::string& name, const at::Tensor& values, int64_t first) {
  for (int64_t i = 0; i < values.numel(); ++i)
    values.mutable_data_ptr<double>()[i] =
        random_normal(random_key(7, name), static_cast<uint64_t>(first + i)) / 2;
}

// Each rank takes its pieces of a model that has no memory anywhere.
TEST(ZeroMemory, DryParametersGetTheirMemoryPieceByPiece) {
  const Toy real(odd_toy());
  for (const Param& param : real.params) quiet_initial(param.name, param.tensor.detach(), 0);
  test::on_ranks(3, [&](comm::Group world) {
    for (int stage = 1; stage <= 3; ++stage) {
      std::optional<Toy> model;
      {
        const Instruments dry({.dry = true});
        ToyOptions options = odd_toy();
        options.fresh = false;
        model.emplace(options);
      }
      Ledger ledger;
      const Instruments on({.ledger = &ledger});
      Zero zero(model->units(), world, {}, {.stage = stage, .initial = quiet_initial});
      int64_t share = 0;
      for (const parallel::ZeroUnit& unit : real.units()) {
        int64_t elements = 0;
        for (const Param& param : unit.params) elements += param.tensor.numel();
        share += (elements + 2) / 3 * 8;
      }
      EXPECT_EQ(ledger.live(memory::cpu), stage < 3 ? 3 * share : share);
      if (stage == 3) {
        EXPECT_EQ(ledger.highest(memory::cpu), share);
      }
      for (const Param& param : model->params) EXPECT_FALSE(is_dry(param.tensor));
      EXPECT_TRUE(
          model->forward(odd_batch(odd_toy()), &zero).equal(real.forward(odd_batch(odd_toy()))));
    }
  });
}

struct DryCase {
  int stage;
  bool keep;
};
class ZeroDry : public testing::TestWithParam<DryCase> {};
INSTANTIATE_TEST_SUITE_P(Stages, ZeroDry,
                         testing::Values(DryCase{1, false}, DryCase{2, false}, DryCase{3, false},
                                         DryCase{3, true}));

void two_steps(const ToyOptions& options, const DryCase& c) {
  Toy model(options);
  Zero zero(model.units(), one_of_four(), {}, {.stage = c.stage, .keep_gathered = c.keep});
  for (int step = 0; step < 2; ++step) {
    for (int pass = 0; pass < 2; ++pass) {
      zero.hold(pass == 0);
      model.loss(odd_batch(options), 4, &zero).backward();
    }
    zero.finish();
    const at::NoGradGuard no_grad;
    test::toy_sgd(zero.params(), 0.05);
    zero.publish();
  }
}

TEST_P(ZeroDry, ADryStepTakesTheMemoryOfARealOne) {
  Ledger real, dry;
  {
    const Instruments on({.ledger = &real});
    two_steps(odd_toy(), GetParam());
  }
  {
    const Instruments on({.ledger = &dry, .dry = true});
    two_steps(odd_toy(), GetParam());
  }
  EXPECT_GT(dry.highest(memory::cpu), 0);
  EXPECT_EQ(dry.highest(memory::cpu), real.highest(memory::cpu));
  EXPECT_EQ(dry.peak(memory::cpu).by_kind, real.peak(memory::cpu).by_kind);
  EXPECT_EQ(dry.live(memory::cpu), 0);
}

// Backward runs on a thread of the engine there.
TEST_P(ZeroDry, OnADeviceThatIsNotThere) {
  Ledger cpu, cuda;
  ToyOptions options = odd_toy();
  {
    const Instruments on({.ledger = &cpu, .dry = true});
    two_steps(options, GetParam());
  }
  {
    const Instruments on({.ledger = &cuda, .dry = true});
    options.type = options.type.device(c10::kCUDA, 0);
    two_steps(options, GetParam());
  }
  EXPECT_GT(cuda.highest(memory::cuda()), 0);
  EXPECT_EQ(cuda.highest(memory::cuda()), cpu.highest(memory::cpu));
}

}  // namespace
}  // namespace braid
