// SPDX-License-Identifier: BSD-3-Clause
// Attention over tokens that are spread over ranks is that of one process, whatever the method.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <tuple>

#include "braid/comm/differentiable.h"
#include "braid/parallel/context.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::parallel {
namespace {

constexpr int64_t samples = 2, heads = 12, width = 4;

struct Whole {
  at::Tensor q, k, v, up;  // up: gradient of the output
  Whole(int64_t tokens, int64_t kv_heads)
      : q(test::drawn({samples, heads, tokens, width}, 1, "context")),
        k(test::drawn({samples, kv_heads, tokens, width}, 2, "context")),
        v(test::drawn({samples, kv_heads, tokens, width}, 3, "context")),
        up(test::drawn({samples, heads, tokens, width}, 4, "context")) {}
};

struct Result {
  at::Tensor out, dq, dk, dv;
};

template <class Attend>
Result result_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const at::Tensor& up, Attend attend) {
  const at::Tensor a = q.clone().requires_grad_(), b = k.clone().requires_grad_(),
                   c = v.clone().requires_grad_();
  const at::Tensor out = attend(a, b, c);
  out.backward(up);
  return {out.detach(), a.grad(), b.grad(), c.grad()};
}

double off(const at::Tensor& a, const at::Tensor& b) { return a.sub(b).abs().max().item<double>(); }

void expect_share(const Result& got, const Result& wanted, const TokenShare& share, double most) {
  const auto mine = [&](const at::Tensor& x) { return take_tokens(x, share, 2); };
  EXPECT_LE(off(got.out, mine(wanted.out)), most) << "output, rank " << share.rank;
  EXPECT_LE(off(got.dq, mine(wanted.dq)), most) << "dq, rank " << share.rank;
  EXPECT_LE(off(got.dk, mine(wanted.dk)), most) << "dk, rank " << share.rank;
  EXPECT_LE(off(got.dv, mine(wanted.dv)), most) << "dv, rank " << share.rank;
}

void expect_same_on_ranks(const comm::Group& world, const Whole& whole, const Result& wanted,
                          const ContextAttentionOptions& options, double most = 1e-12) {
  const bool causal = options.attention.causal;
  const TokenShare share = share_tokens(whole.q.size(2), world, options.method, causal);
  const auto mine = [&](const at::Tensor& x) { return take_tokens(x, share, 2); };
  const Result got = result_of(mine(whole.q), mine(whole.k), mine(whole.v), mine(whole.up),
                               [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
                                 return context_attention(q, k, v, share, world, options);
                               });
  expect_share(got, wanted, share, most);
}

Result alone(const Whole& whole, const kernels::AttentionOptions& options) {
  return result_of(whole.q, whole.k, whole.v, whole.up,
                   [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
                     return kernels::attention(q, k, v, options);
                   });
}

// ranks, tokens, causal, dropout
using ContextCase = std::tuple<int, int64_t, bool, bool>;
class ContextAttention : public testing::TestWithParam<ContextCase> {};
std::string name_of_case(const testing::TestParamInfo<ContextCase>& info) {
  const auto& [ranks, tokens, causal, dropout] = info.param;
  return std::to_string(ranks) + "_ranks_" + std::to_string(tokens) + "_tokens" +
         (causal ? "_causal" : "_full") + (dropout ? "_dropout" : "");
}
INSTANTIATE_TEST_SUITE_P(Ranks, ContextAttention,
                         testing::Combine(testing::Values(2, 3, 4), testing::Values(24, 29),
                                          testing::Bool(), testing::Bool()),
                         name_of_case);

// Keys and values with all heads, with shared ones, and with fewer than there are ranks.
TEST_P(ContextAttention, IsThatOfOneProcessForEveryMethod) {
  const auto [ranks, tokens, causal, dropout] = GetParam();
  kernels::AttentionOptions options = {.causal = causal};
  if (dropout) options.drop = {.rate = 0.3, .key = random_key(7, "attention"), .first_sample = 5};
  for (const int64_t kv_heads : {12, 4, 2, 1}) {
    const Whole whole(tokens, kv_heads);
    const Result wanted = alone(whole, options);
    test::on_ranks(ranks, [&](comm::Group world) {
      for (const auto method :
           {ContextMethod::gather, ContextMethod::ring, ContextMethod::all_to_all}) {
        SCOPED_TRACE("method " + std::to_string(static_cast<int>(method)) + ", kv heads " +
                     std::to_string(kv_heads));
        expect_same_on_ranks(world, whole, wanted, {options, method});
      }
    });
  }
}

// With tensor parallelism a rank has some of the heads: masks are those of the global ones.
TEST(ContextAttentionHeads, DropoutIsThatOfTheGlobalHead) {
  const Whole whole(14, heads);
  kernels::AttentionOptions options = {.causal = true};
  options.drop = {.rate = 0.4, .key = random_key(3, "attention")};
  const Result all = alone(whole, options);
  const Range held = {4, 8};
  const auto some = [&](const at::Tensor& x) { return x.narrow(1, held.begin, held.size()); };
  Whole part = whole;
  for (at::Tensor* x : {&part.q, &part.k, &part.v, &part.up}) *x = some(*x);
  const Result wanted = {some(all.out), some(all.dq), some(all.dk), some(all.dv)};
  options.drop.windows = {{1, heads, {held}}};
  test::on_ranks(2, [&](comm::Group world) {
    for (const auto method :
         {ContextMethod::gather, ContextMethod::ring, ContextMethod::all_to_all})
      expect_same_on_ranks(world, part, wanted, {options, method});
  });
}

TEST(ContextAttentionWidths, ValuesMayBeWiderThanKeys) {
  Whole whole(11, 3);
  whole.v = test::drawn({samples, 3, 11, 6}, 3, "context");
  whole.up = test::drawn({samples, heads, 11, 6}, 4, "context");
  for (const bool causal : {false, true}) {
    const Result wanted = alone(whole, {.causal = causal, .scale = 0.7});
    test::on_ranks(3, [&](comm::Group world) {
      for (const auto method :
           {ContextMethod::gather, ContextMethod::ring, ContextMethod::all_to_all})
        expect_same_on_ranks(world, whole, wanted, {{.causal = causal, .scale = 0.7}, method});
    });
  }
}

// A token a rank, and one that has two: some ranks of a folded ring have a head and no tail.
TEST(ContextAttentionFew, TokensAreEnough) {
  for (const int64_t tokens : {4, 5}) {
    const Whole whole(tokens, heads);
    const Result wanted = alone(whole, {.causal = true});
    test::on_ranks(4, [&](comm::Group world) {
      for (const auto method :
           {ContextMethod::gather, ContextMethod::ring, ContextMethod::all_to_all})
        expect_same_on_ranks(world, whole, wanted, {{.causal = true}, method});
    });
  }
}

TEST(ContextAttentionHalf, SumsOfBlocksAreInFp32) {
  Whole whole(31, heads);
  const Result exact = alone(whole, {.causal = true});
  for (at::Tensor* x : {&whole.q, &whole.k, &whole.v, &whole.up}) *x = x->to(at::kBFloat16);
  const Result once = alone(whole, {.causal = true});
  const double rounding = off(once.dk.to(at::kDouble), exact.dk);
  test::on_ranks(4, [&](comm::Group world) {
    for (const auto method :
         {ContextMethod::gather, ContextMethod::ring, ContextMethod::all_to_all})
      expect_same_on_ranks(world, whole, exact, {{.causal = true}, method}, 2 * rounding);
  });
}

TEST(ContextAttentionAlone, OneRankIsThePlainKernel) {
  const Whole whole(9, heads);
  const comm::Group one;
  const TokenShare share = share_tokens(9, one, ContextMethod::ring, true);
  EXPECT_TRUE(share.is_whole());
  EXPECT_TRUE(context_attention(whole.q, whole.k, whole.v, share, one,
                                {{.causal = true}, ContextMethod::ring})
                  .equal(kernels::attention(whole.q, whole.k, whole.v, {.causal = true})));
}

}  // namespace
}  // namespace braid::parallel
