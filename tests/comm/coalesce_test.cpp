// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "braid/comm/counting.h"
#include "braid/comm/group.h"
#include "braid/comm/mismatch.h"
#include "comm/values.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using comm::Kind;
using Tensors = std::vector<at::Tensor>;

// Shapes that have nothing in common, one without elements and one with holes, two dtypes.
Tensors several(int rank, int64_t first = 1) {
  return {test::values(rank, {first, 3}, at::kFloat), test::values(rank, {first * 2}, at::kDouble),
          test::values(rank, {first, 0}, at::kFloat),
          test::values(rank, {5, first * 2}, at::kFloat).t(),
          test::values(rank, {first * 4, 2}, at::kDouble)};
}

// The same with the calls one by one.
template <class Call>
void expect_like_one_by_one(const Tensors& together, const Tensors& apart, Call call) {
  for (size_t i = 0; i < apart.size(); ++i) {
    if (apart[i].numel() > 0) call(i);
    // Thirds are rounded, and a ring adds each part of a buffer in another order.
    EXPECT_TRUE(together[i].allclose(apart[i], 1e-6, 1e-6)) << "tensor " << i;
  }
}

TEST(Coalesced, EqualsTheCallsOneByOne) {
  test::on_ranks(3, [](comm::Group world) {
    const int n = world.size(), r = world.rank();
    for (const comm::Op op : {comm::Op::sum, comm::Op::mean, comm::Op::max}) {
      const Tensors sums = several(r), one = several(r);
      world.all_reduce(sums, op).wait();
      expect_like_one_by_one(sums, one, [&](size_t i) { world.all_reduce(one[i], op).wait(); });

      const Tensors whole = several(r, n), shares = several(9), share = several(9);
      world.reduce_scatter(shares, whole, op).wait();
      expect_like_one_by_one(
          shares, share, [&](size_t i) { world.reduce_scatter(share[i], whole[i], op).wait(); });
      const Tensors unchanged = several(r, n);
      for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(whole[i].equal(unchanged[i]));
    }
    const Tensors mine = several(r), gathered = several(7, n), gather = several(7, n);
    world.all_gather(gathered, mine).wait();
    expect_like_one_by_one(gathered, gather,
                           [&](size_t i) { world.all_gather(gather[i], mine[i]).wait(); });
    const Tensors sent = several(r);
    world.broadcast(sent, 1).wait();
    const Tensors root = several(1);
    for (size_t i = 0; i < sent.size(); ++i) EXPECT_TRUE(sent[i].equal(root[i]));
  });
}

TEST(Coalesced, IsOneMessageForEachDtype) {
  const auto traffic = std::make_shared<comm::Traffic>();
  const comm::Group world(comm::counting(comm::dry(0, 4), traffic));
  const Tensors tensors = several(0);
  const double bytes = (3 + 10) * 4 + (2 + 8) * 8;
  world.all_reduce(tensors).wait();
  EXPECT_EQ(traffic->calls(Kind::all_reduce), 2);
  EXPECT_EQ(traffic->bytes(Kind::all_reduce), bytes);
  EXPECT_EQ(traffic->wire_bytes(), 2 * 0.75 * bytes);
  traffic->clear();
  world.all_gather(several(0, 4), tensors).wait();
  EXPECT_EQ(traffic->calls(Kind::all_gather), 2);
  EXPECT_EQ(traffic->bytes(Kind::all_gather), 4 * bytes);
  traffic->clear();
  world.broadcast({tensors[0], tensors[3]}, 2).wait();
  EXPECT_EQ(traffic->calls(Kind::broadcast), 1);
  world.broadcast(Tensors{tensors[2]}, 2).wait();
  EXPECT_EQ(traffic->calls(Kind::broadcast), 1) << "nothing to send";
}

TEST(Coalesced, GivesItsResultsAtTheWait) {
  test::on_ranks(2, [](comm::Group world) {
    const Tensors tensors = {test::values(world.rank(), {4}), test::values(world.rank(), {3})};
    const at::Tensor before = tensors[1].clone();
    comm::Pending pending = world.all_reduce(tensors);
    EXPECT_TRUE(tensors[1].equal(before)) << "packed: the tensors are free until wait()";
    pending.wait();
    EXPECT_TRUE(pending.done());
    EXPECT_TRUE(tensors[1].equal(test::values(0, {3}).add(test::values(1, {3}))));
  });
}

TEST(Coalesced, OfOneRankCopies) {
  const comm::Group alone;
  const Tensors out = several(3), in = several(5);
  alone.all_gather(out, in).wait();
  for (size_t i = 0; i < in.size(); ++i) EXPECT_TRUE(out[i].equal(in[i]));
}

TEST(Coalesced, RefusesListsThatDoNotFit) {
  const comm::Group world(comm::dry(0, 2));
  const at::Tensor two = at::zeros({2}), four = at::zeros({4});
  EXPECT_TRUE(
      test::contains(test::error_of([&] { world.all_gather(Tensors{four}, {two, two}).wait(); }),
                     "all_gather of 2 tensors into 1, in group world"));
  EXPECT_TRUE(test::contains(
      test::error_of([&] { world.reduce_scatter(Tensors{two, two}, {four, two}).wait(); }),
      "the whole has 2 elements, not 2 ranks times 2"));
}

}  // namespace
}  // namespace braid
