// SPDX-License-Identifier: BSD-3-Clause
// A pair of split layers against the same pair on one process. Whole numbers in fp64: every sum is
// exact, so equal means equal, whatever the order of additions.
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include "braid/comm/counting.h"
#include "braid/comm/differentiable.h"
#include "braid/parallel/tensor.h"
#include "comm/values.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::parallel::tensor_linear {  // names of its own, also in a unity build
namespace {

constexpr int64_t batch = 2, tokens = 7, width = 6, hidden = 11;

at::Tensor whole_numbers(int seed, at::IntArrayRef sizes) {
  return test::values(seed, sizes, at::kDouble).remainder(7).sub(3).clone();
}
at::Tensor trained(const at::Tensor& x) { return x.clone().requires_grad_(); }

struct Pair {
  at::Tensor x, w1, b1, w2, b2, gate;
};

Pair whole_pair() {
  return {trained(whole_numbers(1, {batch, tokens, width})),
          trained(whole_numbers(2, {hidden, width})),
          trained(whole_numbers(3, {hidden})),
          trained(whole_numbers(4, {width, hidden})),
          trained(whole_numbers(5, {width})),
          trained(whole_numbers(6, {hidden, width}))};
}

at::Tensor pull_of() { return whole_numbers(7, {batch, tokens, width}); }

at::Tensor piece_of(const at::Tensor& x, int64_t dim, const std::vector<Range>& ranges) {
  std::vector<at::Tensor> parts;
  for (const Range& range : ranges) parts.push_back(x.narrow(dim, range.begin, range.size()));
  return at::cat(parts, dim).detach();
}

struct LinearCase {
  int ranks;
  bool sequence, regather;
  int64_t overlap;
  bool late = false;
};

std::vector<LinearCase> all_cases() {
  std::vector<LinearCase> cases;
  for (const int ranks : {1, 2, 3, 4})
    for (const int64_t overlap : {1, 2, 3})
      for (const bool late : {false, true}) {
        cases.push_back({ranks, false, false, overlap, late});
        cases.push_back({ranks, true, false, overlap, late});
        cases.push_back({ranks, true, true, overlap, late});
      }
  return cases;
}

std::string text_of(const LinearCase& c) {
  return std::to_string(c.ranks) + " ranks, sequence " + std::to_string(c.sequence) +
         ", regather " + std::to_string(c.regather) + ", overlap " + std::to_string(c.overlap) +
         ", late " + std::to_string(c.late);
}

SplitAxis axis_of(const LinearCase& c, const comm::Group& world) {
  auto later = std::make_shared<kernels::Deferred>();
  later->set_active(c.late);
  return {world, c.sequence, c.regather, c.overlap, later};
}

at::Tensor share_of(const at::Tensor& x, const LinearCase& c, const comm::Group& world) {
  if (!c.sequence) return x;
  return x.split_with_sizes(comm::even_shares(tokens, world.size()), 1)[world.rank()];
}

// y = W2 (W1 x + b1) * (gate x) + b2, in which two layers take the same x.
void expect_pair(const LinearCase& c, const comm::Group& world) {
  Pair one = whole_pair();
  const at::Tensor expected = at::linear(
      at::linear(one.x, one.w1, one.b1).mul(at::linear(one.x, one.gate)), one.w2, one.b2);
  expected.backward(pull_of());

  const SplitAxis axis = axis_of(c, world);
  const std::vector<Range> held = split_ranges(hidden, world);
  const at::Tensor x = trained(share_of(one.x.detach(), c, world)),
                   w1 = trained(piece_of(one.w1, 0, held)), b1 = trained(piece_of(one.b1, 0, held)),
                   gate = trained(piece_of(one.gate, 0, held)),
                   w2 = trained(piece_of(one.w2, 1, held)), b2 = trained(one.b2.detach());
  axis.later->open(5);
  const auto wide = column_linears(x, {{w1, b1}, {gate}}, axis, tokens);
  const at::Tensor y = row_linear(wide[0].mul(wide[1]), {w2, b2}, axis);
  EXPECT_TRUE(y.equal(share_of(expected, c, world)));
  y.backward(share_of(pull_of(), c, world));
  EXPECT_TRUE(x.grad().equal(share_of(one.x.grad(), c, world)));
  EXPECT_EQ(w1.grad().defined(), !c.late);
  axis.later->run(5);
  EXPECT_TRUE(w1.grad().equal(piece_of(one.w1.grad(), 0, held)));
  EXPECT_TRUE(b1.grad().equal(piece_of(one.b1.grad(), 0, held)));
  EXPECT_TRUE(gate.grad().equal(piece_of(one.gate.grad(), 0, held)));
  EXPECT_TRUE(w2.grad().equal(piece_of(one.w2.grad(), 1, held)));
  at::Tensor sum = b2.grad().clone();
  if (c.sequence) world.all_reduce(sum).wait();  // each rank has that of its tokens
  EXPECT_TRUE(sum.equal(one.b2.grad()));
}

TEST(TensorLinear, PairsOfSplitLayersAreBitEqualToWholeOnes) {
  for (const LinearCase& c : all_cases()) {
    SCOPED_TRACE(text_of(c));
    test::on_ranks(c.ranks, [&](comm::Group world) { expect_pair(c, world); });
  }
}

// Bytes of what a pair sends, forward and backward, by kind.
std::map<comm::Kind, int64_t> bytes_of(const LinearCase& c) {
  const auto traffic = std::make_shared<comm::Traffic>();
  const comm::Group world(comm::counting(comm::dry(0, c.ranks), traffic));
  const SplitAxis axis = axis_of(c, world);
  const std::vector<Range> held = split_ranges(hidden, world);
  Pair one = whole_pair();
  const at::Tensor x = trained(share_of(one.x.detach(), c, world)),
                   w1 = trained(piece_of(one.w1, 0, held)), w2 = trained(piece_of(one.w2, 1, held));
  const at::Tensor y = row_linear(column_linears(x, {{w1}}, axis, tokens)[0], {w2, one.b2}, axis);
  y.backward(share_of(pull_of(), c, world));
  std::map<comm::Kind, int64_t> bytes;
  for (const comm::TrafficEntry& entry : traffic->entries()) bytes[entry.kind] += entry.bytes;
  return bytes;
}

TEST(TensorLinear, ChunksSendTheSameBytes) {
  using comm::Kind;
  const int64_t all = batch * tokens * width * 8;
  for (const int64_t overlap : {1, 2, 3}) {
    const std::map<Kind, int64_t> plain = {{Kind::all_reduce, 2 * all}};
    EXPECT_EQ(bytes_of({2, false, false, overlap}), plain);
    const std::map<Kind, int64_t> shared = {{Kind::all_gather, 2 * all},
                                            {Kind::reduce_scatter, 2 * all}};
    EXPECT_EQ(bytes_of({2, true, false, overlap}), shared);
    const std::map<Kind, int64_t> again = {{Kind::all_gather, 3 * all},
                                           {Kind::reduce_scatter, 2 * all}};
    EXPECT_EQ(bytes_of({2, true, true, overlap}), again);
  }
}

// The first chunk of a backward pass is under way while the matmul of the next one runs: it is
// waited for after the next one was started.
TEST(TensorLinear, ChunksTravelWhileOthersAreComputed) {
  const auto traffic = std::make_shared<comm::Traffic>();
  const comm::Group world(comm::counting(comm::dry(0, 2), traffic));
  const SplitAxis axis = axis_of({2, true, false, 3}, world);
  Pair one = whole_pair();
  const at::Tensor x = trained(one.x.detach().narrow(1, 0, 4)), w1 = trained(one.w1.detach());
  const at::Tensor y = column_linears(x, {{w1}}, axis, tokens)[0];
  const auto overlaps = [&] {
    const auto entries = traffic->entries();
    int64_t count = 0;
    for (size_t i = 0; i + 1 < entries.size(); ++i)
      count += entries[i].end > entries[i + 1].start ? 1 : 0;
    return count;
  };
  EXPECT_EQ(traffic->calls(comm::Kind::all_gather), 3);
  EXPECT_EQ(overlaps(), 2);
  traffic->clear();
  y.sum().backward();
  EXPECT_EQ(traffic->calls(comm::Kind::reduce_scatter), 3);
  EXPECT_EQ(overlaps(), 2);
}

TEST(TensorLinear, RangesAreSharesOfUnitsOfEachPart) {
  const comm::Group second(comm::dry(1, 2)), third(comm::dry(2, 4));
  EXPECT_EQ(split_ranges(11, second), (std::vector<Range>{{6, 11}}));
  EXPECT_EQ(split_ranges(30, second, 5), (std::vector<Range>{{15, 30}}));
  EXPECT_EQ(split_ranges(36, second, 2, 3), (std::vector<Range>{{6, 12}, {18, 24}, {30, 36}}));
  EXPECT_EQ(split_ranges(16, third, 8), (std::vector<Range>{{8, 16}}));
  EXPECT_EQ(unit_sharers(16, third, 8), (std::vector<int>{2, 3}));
  const std::string refused = test::error_of([&] { split_ranges(3, third); });
  EXPECT_TRUE(test::contains(refused, "3 units of a layer are to be split over mesh.tensor = 4"));
}

}  // namespace
}  // namespace braid::parallel::tensor_linear
