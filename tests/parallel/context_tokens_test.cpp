// SPDX-License-Identifier: BSD-3-Clause
// Which tokens each rank of the context axis has, and what they send each other.
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/comm/counting.h"
#include "braid/parallel/context.h"
#include "parallel/context_block.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::parallel {
namespace {

comm::Group dry_world(int rank, int size) { return comm::Group(comm::dry(rank, size)); }

std::vector<int64_t> counts_of(const TokenShare& share) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < static_cast<int>(share.by_rank.size()); ++rank)
    counts.push_back(share.count(rank));
  return counts;
}

TEST(ContextTokens, AreSharedAsEvenlyAsItGoes) {
  const TokenShare share = share_tokens(4050, dry_world(2, 4), ContextMethod::gather, false);
  EXPECT_EQ(counts_of(share), (std::vector<int64_t>{1013, 1013, 1012, 1012}));
  EXPECT_EQ(share.mine(), (std::vector<Range>{{2026, 3038}}));
  EXPECT_EQ(share.count(), 1012);
}

TEST(ContextTokens, ACausalRingFoldsTheTailOverTheHead) {
  const TokenShare share = share_tokens(10, dry_world(0, 2), ContextMethod::ring, true);
  EXPECT_EQ(share.by_rank[0], (std::vector<Range>{{0, 3}, {8, 10}}));
  EXPECT_EQ(share.by_rank[1], (std::vector<Range>{{3, 8}}));  // both runs are neighbours
  EXPECT_EQ(share_tokens(10, dry_world(0, 2), ContextMethod::ring, false).by_rank[0],
            (std::vector<Range>{{0, 5}}));
}

// Pairs of a query and a key that a rank computes under a causal mask.
int64_t pairs_of(const TokenShare& share, int rank) {
  int64_t pairs = 0;
  for (const Range& range : share.by_rank[static_cast<size_t>(rank)])
    for (int64_t query = range.begin; query < range.end; ++query) pairs += query + 1;
  return pairs;
}

TEST(ContextTokens, ACausalRingGivesAllRanksAsManyPairs) {
  for (const int64_t tokens : {64, 4050, 1001})
    for (const int ranks : {2, 3, 4, 8}) {
      const TokenShare share = share_tokens(tokens, dry_world(0, ranks), ContextMethod::ring, true);
      int64_t least = INT64_MAX, most = 0, all = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        least = std::min(least, pairs_of(share, rank));
        most = std::max(most, pairs_of(share, rank));
        all += pairs_of(share, rank);
      }
      EXPECT_EQ(all, tokens * (tokens + 1) / 2);
      // Runs differ by one token at most, and a token sees all others at most.
      EXPECT_LE(most - least, tokens % (2 * ranks) == 0 ? 0 : 2 * tokens) << tokens << " " << ranks;
      const int64_t run = (tokens + 2 * ranks - 1) / (2 * ranks);
      EXPECT_LE(most - least, run * run + 2 * tokens);
      const TokenShare plain =
          share_tokens(tokens, dry_world(0, ranks), ContextMethod::gather, true);
      EXPECT_GT(pairs_of(plain, ranks - 1) - pairs_of(plain, 0), 4 * (most - least));
    }
}

// What the mask hides is not computed: a hop has one block, half as large as without a mask.
TEST(ContextTokens, AHopOfACausalRingIsOneBlockOfHalfTheSize) {
  const int ranks = 4;
  const TokenShare share = share_tokens(64, dry_world(0, ranks), ContextMethod::ring, true);
  for (const auto& queries : share.by_rank)
    for (const auto& keys : share.by_rank) {
      const auto blocks = seen_blocks(queries, keys, /*causal=*/true);
      ASSERT_EQ(blocks.size(), 1u);
      EXPECT_EQ(blocks[0].causal, queries == keys);
      EXPECT_EQ(blocks[0].queries.size() * blocks[0].keys.size(),
                queries == keys ? 16 * 16 : 16 * 16 / 2);
    }
}

TEST(ContextTokens, BlocksOfNeighbouringKeysAreJoined) {
  const std::vector<AttentionBlock> blocks = {
      {{0, 4}, {0, 4}}, {{0, 4}, {4, 8}}, {{0, 4}, {8, 12}, true}, {{2, 4}, {12, 14}}};
  EXPECT_EQ(
      joined_blocks(blocks),
      (std::vector<AttentionBlock>{{{0, 4}, {0, 8}}, {{0, 4}, {8, 12}, true}, {{2, 4}, {12, 14}}}));
}

TEST(ContextTokens, TakenAndJoinedAreTheWhole) {
  const at::Tensor x = test::drawn({2, 11, 3}, 1, "tokens");
  test::on_ranks(3, [&](comm::Group world) {
    for (const auto method : {ContextMethod::gather, ContextMethod::ring}) {
      const TokenShare share = share_tokens(11, world, method, true);
      const at::Tensor mine = take_tokens(x, share, 1).clone().requires_grad_();
      EXPECT_EQ(mine.size(1), share.count());
      const at::Tensor whole = join_tokens(mine, share, world, 1);
      EXPECT_TRUE(whole.equal(x));
      whole.mul(x).sum().backward();
      EXPECT_TRUE(mine.grad().equal(take_tokens(x, share, 1)));
      EXPECT_TRUE(x.index_select(1, positions_of(share, at::kCPU)).equal(mine));
    }
  });
}

TEST(ContextTokens, FewerThanRanksAreRefused) {
  const std::string text =
      test::error_of([] { share_tokens(3, dry_world(0, 4), ContextMethod::ring, true); });
  EXPECT_TRUE(test::contains(text, "mesh.context = 4 for 3 tokens"));
  EXPECT_TRUE(test::contains(text, "at least one token of a sample"));
  EXPECT_TRUE(test::contains(text, "set mesh.context to at most 3"));
}

TEST(ContextHeads, ThatRanksDoNotDivideAreRefusedForAllToAll) {
  const comm::Group world = dry_world(0, 4);
  const TokenShare share = share_tokens(8, world, ContextMethod::all_to_all, false);
  const at::Tensor x = test::drawn({1, 6, 2, 4}, 1, "heads");
  const std::string text = test::error_of(
      [&] { context_attention(x, x, x, share, world, {.method = ContextMethod::all_to_all}); });
  EXPECT_TRUE(test::contains(text, "mesh.context = 4 does not divide 6 heads of a rank"));
  EXPECT_TRUE(test::contains(text, "set parallel.context to gather or ring"));
}

TEST(ContextHeads, AllToAllWantsATokenShareOfItsOwn) {
  const comm::Group world = dry_world(0, 2);
  const TokenShare folded = share_tokens(8, world, ContextMethod::ring, true);
  const at::Tensor x = test::drawn({1, 6, 4, 4}, 1, "heads");
  EXPECT_TRUE(test::contains(test::error_of([&] {
                               context_attention(x, x, x, folded, world,
                                                 {.method = ContextMethod::all_to_all});
                             }),
                             "call share_tokens with ContextMethod::all_to_all"));
}

// What a forward and a backward pass of attention send, counted on every rank.
template <class Check>
void count_messages(int ranks, ContextMethod method, bool causal, Check check) {
  test::on_ranks(ranks, [&](comm::Group world) {
    const auto traffic = std::make_shared<comm::Traffic>();
    const comm::Group counted(comm::counting(world.backend(), traffic));
    const TokenShare share = share_tokens(8 * ranks, counted, method, causal);
    const auto drawn = [&](int64_t heads, uint64_t seed) {
      return test::drawn({2, heads, share.count(), 4}, seed, "messages").requires_grad_();
    };
    const at::Tensor q = drawn(12, 1), k = drawn(12, 2), v = drawn(12, 3);
    const at::Tensor y = context_attention(q, k, v, share, counted, {{.causal = causal}, method});
    const double n = ranks, local = static_cast<double>(q.nbytes());
    check(*traffic, n, local, /*backward=*/false);
    traffic->clear();
    y.sum().backward();
    check(*traffic, n, local, /*backward=*/true);
  });
}

TEST(ContextMessages, GatherIsTwoAllGathersAndTwoReduceScatters) {
  for (const int ranks : {2, 3, 4})
    for (const bool causal : {false, true})
      count_messages(
          ranks, ContextMethod::gather, causal,
          [](const comm::Traffic& traffic, double n, double local, bool backward) {
            const auto kind = backward ? comm::Kind::reduce_scatter : comm::Kind::all_gather;
            EXPECT_EQ(traffic.calls(kind), 2);
            EXPECT_EQ(traffic.entries().size(), 2u);
            EXPECT_DOUBLE_EQ(traffic.wire_bytes(kind), 2 * (n - 1) * local);  // (n-1)/n of n local
          });
}

TEST(ContextMessages, RingSendsKeysAndValuesOnceRoundAndGradientsWithThem) {
  for (const int ranks : {2, 3, 4})
    for (const bool causal : {false, true})
      count_messages(ranks, ContextMethod::ring, causal,
                     [](const comm::Traffic& traffic, double n, double local, bool backward) {
                       const double rounds = backward ? 2 : 1;  // K, V; then also dK, dV
                       EXPECT_EQ(traffic.calls(comm::Kind::send), rounds * (n - 1));
                       EXPECT_EQ(traffic.calls(comm::Kind::recv), rounds * (n - 1));
                       EXPECT_DOUBLE_EQ(traffic.wire_bytes(), rounds * (n - 1) * 2 * local);
                     });
}

TEST(ContextMessages, AllToAllIsFourExchangesEachWay) {
  for (const int ranks : {2, 3, 4})
    for (const bool causal : {false, true})
      count_messages(ranks, ContextMethod::all_to_all, causal,
                     [](const comm::Traffic& traffic, double n, double local, bool) {
                       EXPECT_EQ(traffic.calls(comm::Kind::all_to_all), 4);
                       EXPECT_EQ(traffic.entries().size(), 4u);
                       EXPECT_DOUBLE_EQ(traffic.wire_bytes(), 4 * (n - 1) / n * local);
                     });
}

}  // namespace
}  // namespace braid::parallel
