// SPDX-License-Identifier: BSD-3-Clause
// Rows on their way to experts and back: where they come, what goes over the wire, and that they
// travel while something else is computed.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "braid/comm/counting.h"
#include "braid/memory/instruments.h"
#include "braid/parallel/expert.h"
#include "support/drawn.h"
#include "support/ranks.h"

namespace braid::parallel {
namespace {

// Row i of `x` on rank r for expert e: 1000 r + 100 e + i.
at::Tensor labelled(int rank, const std::vector<int64_t>& counts) {
  std::vector<double> rows;
  for (size_t e = 0; e < counts.size(); ++e)
    for (int64_t i = 0; i < counts[e]; ++i)
      rows.push_back(1000.0 * rank + 100.0 * static_cast<double>(e) + static_cast<double>(i));
  return at::tensor(rows, at::kDouble).unsqueeze(1);
}

TEST(Experts, GetTheirRowsOfAllRanksByExpert) {
  test::on_ranks(2, [](comm::Group group) {
    const std::vector<int64_t> counts =
        group.rank() == 0 ? std::vector<int64_t>{2, 0, 1, 3} : std::vector<int64_t>{1, 1, 0, 2};
    const ExpertRows rows = counted_rows(group, at::tensor(counts, at::kLong), 6);
    const at::Tensor x = labelled(group.rank(), counts).requires_grad_();
    const at::Tensor arrived = to_experts(x, rows).arrive();
    const at::Tensor wanted =
        group.rank() == 0 ? at::tensor({0.0, 1.0, 1000.0, 1100.0}, at::kDouble)
                          : at::tensor({200.0, 300.0, 301.0, 302.0, 1300.0, 1301.0}, at::kDouble);
    EXPECT_TRUE(arrived.squeeze(1).equal(wanted)) << arrived;
    const std::vector<int64_t> ends =
        group.rank() == 0 ? std::vector<int64_t>{3, 4} : std::vector<int64_t>{1, 6};
    EXPECT_TRUE(rows.offsets.equal(at::tensor(ends, at::kInt)));
    const at::Tensor back = from_experts(arrived.mul(2), rows).arrive();
    EXPECT_TRUE(back.equal(x.detach().mul(2)));
    back.mul(x.detach()).sum().backward();
    EXPECT_TRUE(x.grad().equal(x.detach().mul(2)));
  });
}

TEST(Experts, GetAsManyRowsOfEachRank) {
  test::on_ranks(2, [](comm::Group group) {
    const ExpertRows rows = even_rows(group, 4, 2);
    const at::Tensor x = labelled(group.rank(), {2, 2, 2, 2}).requires_grad_();
    const at::Tensor arrived = to_experts(x, rows).arrive();
    const double first = group.rank() == 0 ? 0 : 200;
    EXPECT_TRUE(arrived[0].squeeze(1).equal(
        at::tensor({first, first + 1, first + 1000, first + 1001}, at::kDouble)));
    const at::Tensor back = from_experts(arrived.mul(3), rows).arrive();
    back.sum().backward();
    EXPECT_TRUE(back.equal(x.detach().mul(3)));
    EXPECT_TRUE(x.grad().equal(at::full_like(x, 3)));
  });
}

// A counted pass there and back, forward and backward.
void pass_once(const comm::Group& group, const ExpertRows& rows) {
  const at::Tensor x = test::drawn({rows.rows_sent(), 6}, 1, "x").requires_grad_();
  const at::Tensor y = to_experts(x, rows).arrive();
  from_experts(y.mul(2), rows).arrive().sum().backward();
  EXPECT_TRUE(x.grad().equal(at::full_like(x, 2))) << group.rank();
}

// techniques: 2 all-to-alls forward and 2 backward of tokens * k * width * bytes * (e - 1) / e.
TEST(Experts, SendFourTimesTheirShareOfTheRows) {
  for (const int ranks : {2, 4}) {
    const auto traffic = std::make_shared<comm::Traffic>();
    const int64_t tokens = 16, k = 2, width = 6, experts = 4;
    test::on_ranks(ranks, [&](comm::Group world) {
      const comm::Group group(comm::counting(world.backend(), traffic));
      pass_once(group, even_rows(group, experts, tokens * k / experts));
    });
    const double each = static_cast<double>(tokens * k * width * 8) * (ranks - 1) / ranks;
    EXPECT_EQ(traffic->calls(comm::Kind::all_to_all), 4 * ranks);
    EXPECT_DOUBLE_EQ(traffic->wire_bytes(comm::Kind::all_to_all), 4 * ranks * each);
    EXPECT_DOUBLE_EQ(traffic->wire_bytes(), traffic->wire_bytes(comm::Kind::all_to_all));
  }
}

TEST(Experts, SendTheRowsThatWereCountedAndTheCounts) {
  const auto traffic = std::make_shared<comm::Traffic>();
  test::on_ranks(2, [&](comm::Group world) {
    const comm::Group group(comm::counting(world.backend(), traffic));
    const std::vector<int64_t> counts =
        group.rank() == 0 ? std::vector<int64_t>{5, 1} : std::vector<int64_t>{0, 4};
    pass_once(group, counted_rows(group, at::tensor(counts, at::kLong), 6));
  });
  EXPECT_EQ(traffic->calls(comm::Kind::all_to_all), 2 * 4);
  // One row leaves rank 0 there, and none rank 1; each way is gone twice and come twice.
  EXPECT_DOUBLE_EQ(traffic->wire_bytes(comm::Kind::all_to_all), 4 * 1 * 6 * 8.0);
  EXPECT_EQ(traffic->calls(comm::Kind::all_gather), 2);
  EXPECT_EQ(traffic->bytes(comm::Kind::all_gather), 2 * (2 * 2 * 8));
}

// What is computed between start and arrival is computed while rows travel, both ways.
TEST(Experts, TravelWhileTheCallerComputes) {
  const auto traffic = std::make_shared<comm::Traffic>();
  test::on_ranks(2, [&](comm::Group world) {
    const comm::Group group(comm::counting(world.backend(), traffic));
    const ExpertRows rows = even_rows(group, 2, 4);
    const at::Tensor x = test::drawn({8, 6}, 1, "x").requires_grad_();
    Travel there = to_experts(x, rows);
    at::Tensor aside = x.mul(3);
    bool under_way = false;  // in the backward pass, when the gradient of `aside` is computed
    aside.register_hook([&](const at::Tensor&) {
      const auto entries = traffic->entries();
      for (const auto& entry : entries)
        under_way |= entry.rank == group.rank() && entry.order > 1 && entry.end < 0;
    });
    for (const auto& entry : traffic->entries())
      if (entry.rank == group.rank()) EXPECT_LT(entry.end, 0) << "nobody has waited yet";
    const at::Tensor y = there.arrive().mul(2).flatten(0, 1).add(aside);
    y.sum().backward();
    EXPECT_TRUE(under_way);
  });
}

TEST(Experts, AreAssumedToBeUsedEvenlyInADryRun) {
  const memory::Instruments dry({.dry = true});
  const comm::Group group(comm::dry(1, 4));
  const ExpertRows rows = counted_rows(group, at::empty({8}, at::kLong), 34);
  EXPECT_EQ(rows.rows_sent(), 34);
  EXPECT_EQ(rows.sent, std::vector<int64_t>({10, 8, 8, 8}));
  EXPECT_EQ(rows.rows_received(), 4 * 8);
  const at::Tensor x = at::empty({34, 6}).requires_grad_();
  const at::Tensor y = to_experts(x, rows).arrive();
  EXPECT_EQ(y.sizes(), at::IntArrayRef({32, 6}));
  from_experts(y, rows).arrive().sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
}

TEST(Experts, OfOneRankStayWhereTheyAre) {
  const at::Tensor counts = at::tensor({2, 0, 3}, at::kLong);
  const ExpertRows rows = counted_rows({}, counts, 5);
  EXPECT_TRUE(rows.offsets.equal(at::tensor({2, 2, 5}, at::kInt)));
  const at::Tensor x = test::drawn({5, 4}, 1, "x");
  EXPECT_TRUE(from_experts(to_experts(x, rows).arrive(), rows).arrive().equal(x));
}

}  // namespace
}  // namespace braid::parallel
