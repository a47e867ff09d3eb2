// SPDX-License-Identifier: BSD-3-Clause
#include "comm/collectives.h"

#include <ATen/ops/full.h>

#include "braid/comm/counting.h"
#include "braid/comm/mismatch.h"
#include "support/ranks.h"

namespace braid {
namespace {

class Collectives : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4, 8));

TEST_P(Collectives, GiveWhatOneProcessComputes) {
  test::on_ranks(GetParam(), [](comm::Group world) { test::check_everything(world); });
}

TEST(Collectives, GiveTheSameAsProcesses) {
  test::on_processes(3, [](comm::Group world) { test::check_everything(world); });
}

TEST(Collectives, GoThroughWrappersUnchanged) {
  const comm::Store store = comm::Store::in_memory();
  const auto traffic = std::make_shared<comm::Traffic>();
  test::on_ranks(3, [&](comm::Group world) {
    test::check_everything(
        comm::Group(comm::counting(comm::checked(world.backend(), store), traffic)));
  });
  EXPECT_GT(traffic->calls(comm::Kind::all_to_all), 0);
}

TEST(Collectives, TakeTensorsWithHoles) {
  test::on_ranks(3, [](comm::Group world) {
    const int n = world.size(), r = world.rank();
    const at::Tensor sum = at::stack(test::values_of_ranks(n, {4, 6}, at::kFloat)).sum(0);
    at::Tensor mine = test::values(r, {4, 6}).t();  // strides 1, 6
    world.all_reduce(mine).wait();
    EXPECT_TRUE(mine.equal(sum.t()));
    mine = test::values(r, {4, 6});
    world.all_reduce(mine.slice(1, 0, 6, 2)).wait();  // the columns between stay
    EXPECT_TRUE(mine.slice(1, 0, 6, 2).equal(sum.slice(1, 0, 6, 2)));
    EXPECT_TRUE(mine.slice(1, 1, 6, 2).equal(test::values(r, {4, 6}).slice(1, 1, 6, 2)));

    const at::Tensor whole = at::zeros({3, 3 * n}).t();
    world.all_gather(whole, test::values(r, {3, 3}).t()).wait();
    for (int i = 0; i < n; ++i)
      EXPECT_TRUE(whole.narrow(0, 3 * i, 3).equal(test::values(i, {3, 3}).t()));
    const at::Tensor share = at::zeros({6, 2}).t();
    world.reduce_scatter(share, test::values(r, {6, 2 * n}).t(), comm::Op::mean).wait();
    const at::Tensor means = at::stack(test::values_of_ranks(n, {6, 2 * n}, at::kFloat)).mean(0);
    EXPECT_TRUE(share.allclose(means.t().narrow(0, 2 * r, 2)));
  });
}

// Large shares take another way than small ones.
TEST(Collectives, GatherLargeShares) {
  test::on_ranks(3, [](comm::Group world) {
    const int64_t rows = 200'000;
    const at::Tensor whole = at::zeros({3 * rows, 2}),
                     own = whole.narrow(0, world.rank() * rows, rows);
    world.all_gather(whole, test::values(world.rank(), {rows, 2})).wait();
    const at::Tensor expected = at::cat(test::values_of_ranks(3, {rows, 2}, at::kFloat));
    EXPECT_TRUE(whole.equal(expected));
    whole.zero_();
    own.copy_(test::values(world.rank(), {rows, 2}));
    world.all_gather(whole, own).wait();  // from its own place
    EXPECT_TRUE(whole.equal(expected));
  });
}

TEST(Collectives, MeanOfHalfPrecisionDoesNotOverflow) {
  test::on_ranks(4, [](comm::Group world) {
    const at::Tensor mine = at::full({3}, 60000, at::kHalf);  // four of them are infinite
    world.all_reduce(mine, comm::Op::mean).wait();
    EXPECT_TRUE(mine.equal(at::full({3}, 60000, at::kHalf)));
  });
}

TEST(Collectives, MoveEveryDtypeAndNothing) {
  test::on_ranks(2, [](comm::Group world) {
    for (const at::ScalarType dtype : {at::kBool, at::kShort, at::kFloat8_e4m3fn, at::kHalf}) {
      const at::Tensor whole = at::zeros({4}, dtype), mine = at::full({2}, 1, at::kFloat).to(dtype);
      world.all_gather(whole, mine).wait();
      EXPECT_TRUE(whole.to(at::kFloat).equal(at::full({4}, 1, at::kFloat))) << c10::toString(dtype);
    }
    const at::Tensor none = at::zeros({0, 3});
    world.all_reduce(none).wait();
    world.broadcast(none, 1).wait();
    world.all_gather(none, none).wait();
    world.reduce_scatter(none, none).wait();
    world.all_to_all(none, none).wait();
  });
}

TEST(Collectives, SplitGroupsKeepToThemselves) {
  test::on_ranks(4, [](comm::Group world) {
    const int r = world.rank();
    const comm::Group row = world.split(r < 2 ? std::vector{0, 1} : std::vector{2, 3}, "row");
    const comm::Group column =
        world.split(r % 2 == 0 ? std::vector{2, 0} : std::vector{3, 1}, "column");
    EXPECT_EQ(column.rank(), r < 2 ? 1 : 0) << "ranked in the order given";
    EXPECT_EQ(column.ranks(), (std::vector{r % 2 + 2, r % 2}));
    const at::Tensor a = at::full({1}, r, at::kFloat), b = a.clone();
    comm::Pending first = row.all_reduce(a), second = column.all_reduce(b);
    second.wait();
    first.wait();
    EXPECT_EQ(a.item<float>(), r < 2 ? 1 : 5);
    EXPECT_EQ(b.item<float>(), r % 2 == 0 ? 2 : 4);
    EXPECT_EQ(row.split({row.rank()}, "me").ranks(), std::vector{r});
  });
}

}  // namespace
}  // namespace braid
