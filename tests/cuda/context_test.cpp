// SPDX-License-Identifier: BSD-3-Clause
// Blocks of attention on a GPU, put together, are the attention of the CPU in fp64.
#include <gtest/gtest.h>

#include "parallel/context_block.h"
#include "support/cuda.h"
#include "support/drawn.h"

namespace braid::parallel {
namespace {

constexpr int64_t tokens = 101;
const Range mine = {37, 101};  // the queries of the last rank of a causal sample

at::Tensor own_queries(const at::Tensor& x) { return x.narrow(2, mine.begin, mine.size()); }

struct Passed {
  at::Tensor out, dq, dk, dv;
};

template <class Attend>
Passed passed(std::vector<at::Tensor> qkv, const at::Tensor& up, Attend attend) {
  for (at::Tensor& x : qkv) x = x.detach().clone().requires_grad_();
  const at::Tensor out = attend(qkv[0], qkv[1], qkv[2]);
  out.backward(up);
  return {out.detach(), qkv[0].grad(), qkv[1].grad(), qkv[2].grad()};
}

void expect_near(const at::Tensor& got, const at::Tensor& wanted, double tolerance) {
  const double off = got.cpu().to(at::kDouble).sub(wanted).abs().max().item<double>();
  EXPECT_LE(off, tolerance * wanted.abs().max().item<double>());
}

class ContextOnGpu : public OnGpu {
 protected:
  // q of all tokens on the CPU, of the own ones on the GPU; the others have no gradient.
  static void compare(c10::ScalarType dtype, int64_t kv_heads, double rate, double tolerance) {
    const auto drawn = [&](int64_t heads, uint64_t seed) {
      return test::drawn({2, 8, tokens, 64}, seed, "gpu")
          .narrow(1, 0, heads)
          .to(dtype)
          .to(at::kDouble);
    };
    const std::vector<at::Tensor> host = {drawn(8, 1), drawn(kv_heads, 2), drawn(kv_heads, 3)};
    at::Tensor up = drawn(8, 4);
    up.narrow(2, 0, mine.begin).zero_();
    kernels::AttentionOptions options = {.causal = true};
    options.drop = {.rate = rate, .key = random_key(1, "gpu")};
    const Passed wanted = passed(host, up, [&](const auto& q, const auto& k, const auto& v) {
      return kernels::attention(q, k, v, options);
    });
    const auto there = [&](const at::Tensor& x) { return x.to(dtype).to(gpu()); };
    const std::vector<AttentionBlock> blocks = {
        {{0, mine.size()}, mine, true}, {{0, mine.size()}, {0, 11}}, {{0, mine.size()}, {11, 37}}};
    const BlockHow how = {options, tokens, {mine}, {{0, tokens}}};
    const Passed got =
        passed({there(own_queries(host[0])), there(host[1]), there(host[2])},
               there(own_queries(up)), [&](const auto& q, const auto& k, const auto& v) {
                 return attention_by_blocks(q, k, v, blocks, how);
               });
    expect_near(got.out, own_queries(wanted.out), tolerance);
    expect_near(got.dq, own_queries(wanted.dq), tolerance);
    expect_near(got.dk, wanted.dk, tolerance);
    expect_near(got.dv, wanted.dv, tolerance);
  }
};

TEST_F(ContextOnGpu, BlocksAddUpForEveryKernel) {
  for (const int64_t kv_heads : {8, 2})
    for (const double rate : {0.0, 0.3}) {  // with dropout: written out
      compare(at::kDouble, kv_heads, rate, 1e-12);
      compare(at::kFloat, kv_heads, rate, 2e-5);     // memory-efficient
      compare(at::kHalf, kv_heads, rate, 4e-3);      // flash
      compare(at::kBFloat16, kv_heads, rate, 3e-2);  // flash
    }
}

}  // namespace
}  // namespace braid::parallel
