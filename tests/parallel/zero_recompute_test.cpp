// SPDX-License-Identifier: BSD-3-Clause
// Blocks that run a second time within the backward pass: ZeRO gathers what is not there and
// gradients keep their bits.
#include <gtest/gtest.h>

#include <c10/util/Exception.h>

#include <memory>

#include "braid/comm/counting.h"
#include "braid/memory/recompute.h"
#include "braid/parallel/zero.h"
#include "parallel/zero_toy.h"
#include "support/ranks.h"

namespace braid {
namespace {

using comm::Kind;
using parallel::Zero;
using test::Toy;
using test::ToyOptions;

struct AgainCase {
  int ranks, stage;
  bool keep;
  int64_t segment;  // blocks of one; 0: none
  int64_t passes = 1;
};

constexpr int64_t again_blocks = 5;

ToyOptions again_toy(bool unused = false) {
  return {.width = 7, .hidden = 5, .blocks = again_blocks, .unused = unused};
}

at::Tensor again_loss(const Toy& model, const at::Tensor& x, Zero& zero, SegmentRunner* segments,
                      int64_t together) {
  const auto body = [&](const at::Tensor& in) {
    at::Tensor y = at::matmul(in, model.find("embed.weight"));
    for (int64_t first = 0; first < again_blocks; first += together) {
      const int64_t end = std::min(first + together, again_blocks);
      y = run_segment(segments, SegmentKind::blocks, "blocks." + std::to_string(first), {y},
                      [&model, &zero, first, end](const std::vector<at::Tensor>& given) {
                        at::Tensor z = given[0];
                        for (int64_t i = first; i < end; ++i)
                          z = zero.run(
                              "blocks." + std::to_string(i), z,
                              [&model, i](const at::Tensor& t) { return model.block(i, t); });
                        return z;
                      });
    }
    y = y.add(model.find("shift")).mul(model.find("gain"));
    return at::matmul(y, model.find("head.weight").t());
  };
  return zero.run("", x, body).square().sum().div(4);
}

struct AgainFound {
  std::vector<at::Tensor> weights = {};
  int64_t gathered = 0, reduced = 0;
  int64_t again = 0;
};

AgainFound again_steps(const comm::Group& world, const AgainCase& c, bool unused = false) {
  const auto own = std::make_shared<comm::Traffic>();
  Toy model(again_toy(unused));
  Zero zero(model.units(), comm::Group(comm::counting(world.backend(), own)), {},
            {.stage = c.stage, .keep_gathered = c.keep});
  memory::Recompute again({.what = memory::Again::blocks});
  SegmentRunner* const segments = c.segment > 0 ? &again : nullptr;
  const at::Tensor x = test::toy_values({4, 6}, "batch" + std::to_string(world.rank()));
  for (int step = 0; step < 3; ++step) {
    own->clear();
    for (int64_t pass = 0; pass < c.passes; ++pass) {
      zero.hold(pass + 1 < c.passes);
      again_loss(model, x, zero, segments, std::max<int64_t>(c.segment, 1)).backward();
    }
    zero.finish();
    test::toy_sgd(zero.params(), 0.1);
    zero.publish();
  }
  AgainFound found = {.gathered = own->bytes(Kind::all_gather),
                      .reduced = own->bytes(Kind::reduce_scatter),
                      .again = again.counts().again};
  for (const Param& piece : zero.params()) found.weights.push_back(piece.tensor.detach().clone());
  return found;
}

int64_t bytes_of_block(int64_t i, int64_t ranks) {
  const std::vector<parallel::ZeroUnit> units = Toy(again_toy()).units();
  int64_t elements = 0;
  for (const Param& param : units[static_cast<size_t>(i)].params) elements += param.tensor.numel();
  return (elements + ranks - 1) / ranks * ranks * 8;
}

class ZeroRecompute : public testing::TestWithParam<AgainCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, ZeroRecompute,
                         testing::Values(AgainCase{2, 1, false, 2}, AgainCase{2, 2, false, 3, 2},
                                         AgainCase{2, 3, false, 1}, AgainCase{3, 3, false, 2},
                                         AgainCase{4, 3, false, 3, 2}, AgainCase{2, 3, false, 5},
                                         AgainCase{3, 3, true, 2}, AgainCase{2, 3, true, 5, 2}));

// Backward enters the last block of a segment and gathers the one before it ahead; the second run
// uses both, and gathers those that stand before them once more. Kept weights are all there.
TEST_P(ZeroRecompute, KeepsBitsAndGathersWhatIsNotThere) {
  const AgainCase& c = GetParam();
  test::on_ranks(c.ranks, [&](comm::Group world) {
    AgainCase without = c;
    without.segment = 0;
    const AgainFound plain = again_steps(world, without), found = again_steps(world, c);
    ASSERT_EQ(found.weights.size(), plain.weights.size());
    for (size_t i = 0; i < plain.weights.size(); ++i)
      EXPECT_TRUE(found.weights[i].equal(plain.weights[i])) << i;
    const int64_t segments = (again_blocks + c.segment - 1) / c.segment;
    EXPECT_EQ(found.again, 3 * c.passes * segments);
    int64_t more = 0;
    for (int64_t i = 0; i < again_blocks && c.stage == 3 && !c.keep; ++i) {
      const int64_t end = std::min((i / c.segment + 1) * c.segment, again_blocks);
      if (i < end - 2) more += bytes_of_block(i, c.ranks);
    }
    EXPECT_EQ(found.gathered, plain.gathered + c.passes * more);
    EXPECT_EQ(found.reduced, plain.reduced);
  });
}

TEST(ZeroRecompute, WithWeightsThatAreNotUsed) {
  test::on_ranks(2, [&](comm::Group world) {
    const AgainFound plain = again_steps(world, {2, 3, false, 0}, /*unused=*/true);
    const AgainFound found = again_steps(world, {2, 3, false, 3}, /*unused=*/true);
    for (size_t i = 0; i < plain.weights.size(); ++i)
      EXPECT_TRUE(found.weights[i].equal(plain.weights[i])) << i;
  });
}

// A run that ends early, by whatever is thrown, leaves nothing behind that it gathered.
TEST(ZeroRecompute, GivesBackWhatItGatheredAlsoAfterAnError) {
  test::on_ranks(2, [&](comm::Group world) {
    Toy model(again_toy());
    Zero zero(model.units(), world, {}, {.stage = 3});
    const at::Tensor weight = model.find("blocks.2.up");
    const auto is_there = [&] {
      try {
        return weight.sum().defined();
      } catch (const c10::Error&) {
        return false;
      }
    };
    EXPECT_FALSE(is_there());
    const RecomputingGuard again;
    const at::Tensor x = test::toy_values({4, 7}, "x");
    EXPECT_THROW(zero.run("blocks.2", x,
                          [&](const at::Tensor& in) -> at::Tensor {
                            EXPECT_TRUE(is_there());
                            model.block(2, in);
                            throw std::runtime_error("enough");
                          }),
                 std::runtime_error);
    EXPECT_FALSE(is_there());
  });
}

}  // namespace
}  // namespace braid
