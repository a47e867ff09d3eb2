// SPDX-License-Identifier: BSD-3-Clause
// The MPI backend under a real mpirun. Skipped, with the reason, where there is none.
#include "braid/comm/mpi.h"

#include <ATen/ops/full.h>

#include <chrono>
#include <thread>

#include "comm/collectives.h"
#include "support/expect.h"
#include "support/mpirun.h"

namespace braid {
namespace {

class OnMpi : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string reason = comm::mpi_missing(); !reason.empty()) GTEST_SKIP() << reason;
    if (test::mpirun_path().empty()) GTEST_SKIP() << "mpirun is not installed";
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, OnMpi, testing::Values(2, 4));

TEST_P(OnMpi, CollectivesGiveWhatOneProcessComputes) {
  if (!test::on_mpirun(GetParam())) return;
  const comm::Group world(comm::mpi());
  ASSERT_EQ(world.size(), GetParam());
  EXPECT_EQ(world.backend()->name(), "mpi");
  test::check_everything(world);
}

// A limit of a few elements: what a real tensor does only beyond 2^31.
TEST_P(OnMpi, CallsLargerThanACountGoInPieces) {
  if (!test::on_mpirun(GetParam())) return;
  test::check_everything(comm::Group(comm::mpi({.largest_count = 7})));
}

TEST_P(OnMpi, GroupsOfSomeRanksKeepToThemselves) {
  if (!test::on_mpirun(GetParam())) return;
  const comm::Group world(comm::mpi());
  const int n = world.size(), r = world.rank();
  std::vector<int> even, odd, back;
  for (int i = 0; i < n; ++i) (i % 2 == 0 ? even : odd).push_back(i);
  for (int i = n - 1; i >= 0; --i) back.push_back(i);
  const comm::Group half = world.split(r % 2 == 0 ? even : odd, "half");
  const comm::Group turned = world.split(back, "back");
  EXPECT_EQ(turned.rank(), n - 1 - r) << "ranked in the order given";
  const at::Tensor a = at::full({1}, r, at::kFloat), b = at::full({1}, r, at::kFloat);
  comm::Pending first = half.all_reduce(a), second = turned.broadcast(b, 0);
  second.wait();
  first.wait();
  float sum = 0;
  for (const int other : r % 2 == 0 ? even : odd) sum += static_cast<float>(other);
  EXPECT_EQ(a.item<float>(), sum);
  EXPECT_EQ(b.item<float>(), static_cast<float>(n - 1));
  test::check_everything(half);
  test::check_everything(turned.split(back, "again"));
}

TEST_P(OnMpi, GathersFromItsOwnPlace) {
  if (!test::on_mpirun(GetParam())) return;
  for (const int64_t limit : {1 << 30, 5}) {
    const comm::Group world(comm::mpi({.largest_count = limit}));
    const int n = world.size(), r = world.rank();
    const at::Tensor whole = at::zeros({2 * n, 3}), own = whole.narrow(0, 2 * r, 2);
    own.copy_(test::values(r, {2, 3}));
    world.all_gather(whole, own).wait();
    EXPECT_TRUE(whole.equal(at::cat(test::values_of_ranks(n, {2, 3}, at::kFloat))));
  }
}

TEST_P(OnMpi, HalfPrecisionIsAddedInFp32) {
  if (!test::on_mpirun(GetParam())) return;
  const comm::Group world(comm::mpi());
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const at::Tensor mine = at::full({100}, 0.25 * (world.rank() + 1), dtype);
    world.all_reduce(mine).wait();
    const int n = world.size();
    EXPECT_TRUE(mine.equal(at::full({100}, 0.25 * n * (n + 1) / 2, dtype)));
  }
  const at::Tensor big = at::full({3}, 60000, at::kHalf);
  world.all_reduce(big, comm::Op::mean).wait();
  EXPECT_TRUE(big.equal(at::full({3}, 60000, at::kHalf)));
}

// Sends go on while the program computes: nobody calls MPI here between start and done().
TEST_P(OnMpi, CallsGoOnByThemselves) {
  if (!test::on_mpirun(GetParam())) return;
  const comm::Group world(comm::mpi());
  const at::Tensor mine = at::full({1 << 20}, 1, at::kFloat);
  comm::Pending sum = world.all_reduce(mine);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_TRUE(sum.done());
  sum.wait();
  EXPECT_EQ(mine[12345].item<float>(), static_cast<float>(world.size()));
}

class OnTwoOfMpi : public OnMpi {};
INSTANTIATE_TEST_SUITE_P(Ranks, OnTwoOfMpi, testing::Values(2));

TEST_P(OnTwoOfMpi, ACallThatDoesNotEndIsNamed) {
  if (!test::is_mpi_rank()) {
    const test::Outcome done = test::mpirun_this_test(2);
    EXPECT_NE(done.code, 0) << "a broken job must not look well";
    EXPECT_TRUE(test::contains(done.out + done.err, "rank 0 saw the limit"));
    EXPECT_FALSE(test::contains(done.out + done.err, "FAILED"));
    return;
  }
  const comm::Group world(comm::mpi({.timeout_seconds = 0.5}));
  if (world.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return;
  }
  const at::Tensor mine = at::full({3}, 1, at::kFloat);
  const std::string text = test::error_of([&] { world.all_reduce(mine).wait(); });
  EXPECT_TRUE(test::contains(text, "all_reduce sum Float [3] of group world"));
  EXPECT_TRUE(test::contains(text, "did not end within 0.5 s"));
  if (!HasFailure()) std::fprintf(stderr, "rank 0 saw the limit\n");
}

TEST_P(OnTwoOfMpi, ARankThatGivesUpEndsTheOthersCalls) {
  if (!test::is_mpi_rank()) {
    const test::Outcome done = test::mpirun_this_test(2);
    EXPECT_NE(done.code, 0);
    EXPECT_TRUE(test::contains(done.out + done.err, "rank 0 was told"));
    EXPECT_FALSE(test::contains(done.out + done.err, "FAILED"));
    return;
  }
  const comm::Group world(comm::mpi());
  if (world.rank() == 1) {
    world.abort();
    EXPECT_TRUE(test::contains(test::error_of([&] { world.barrier().wait(); }),
                               "this rank gave up the group"));
    std::this_thread::sleep_for(std::chrono::seconds(1));  // mpirun ends the rest with the first
    return;
  }
  const std::string text = test::error_of([&] { world.barrier().wait(); });
  EXPECT_TRUE(test::contains(text, "rank 1 gave up the group"));
  if (!HasFailure()) std::fprintf(stderr, "rank 0 was told\n");
}

TEST_P(OnTwoOfMpi, ARankThatDoesNotComeToANewGroupIsNamed) {
  if (!test::is_mpi_rank()) {
    const test::Outcome done = test::mpirun_this_test(2);
    EXPECT_NE(done.code, 0);
    EXPECT_TRUE(test::contains(done.out + done.err, "rank 0 knows who"));
    return;
  }
  const comm::Group world(comm::mpi({.timeout_seconds = 0.5}));
  if (world.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return;
  }
  try {
    (void)world.split({0, 1}, "both");
    ADD_FAILURE() << "no error";
  } catch (const std::exception& error) {
    if (test::contains(error.what(), "rank 1 did not come to the new group"))
      std::fprintf(stderr, "rank 0 knows who\n");
  }
}

}  // namespace
}  // namespace braid
