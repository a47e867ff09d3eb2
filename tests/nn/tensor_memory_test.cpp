// SPDX-License-Identifier: BSD-3-Clause
// The published table of activation memory of a layer (sequence parallelism and selective
// recomputation, table 2), found again by dry runs of the real model on one rank of many: equal to
// the byte once the terms are added that the formulas leave out. Each of those is listed. Of their
// 34 sbh 8 are the output of gelu, which is computed again and not kept: 26 remain. On one rank the
// outputs of the norms, 4 sbh, are not kept either.
#include "nn/tensor_memory.h"

namespace braid::nn::tensor_memory {
namespace {

// What the formulas leave out: the mean and 1/std of two norms in fp32, of the tokens that a rank
// has there; the causal mask, one bool a pair of positions, which all heads share; and q before it
// is scaled, where k and v are read in place from the tensor that q, k and v came in: that needs no
// copies for one sample or one head.
int64_t left_out(const Sizes& z, int64_t norm_tokens, int64_t t) {
  const int64_t mask = z.s * z.s;
  const int64_t unscaled = z.b == 1 || z.a == t ? 2 * z.s * z.b * z.h / t : 0;
  return of_norms(z, norm_tokens) + mask + unscaled;
}

TEST(TensorMemory, OfALayerOnOneRank) {
  for (const Sizes& z : all_sizes) {
    const int64_t formula = z.s * z.b * (22 * z.h + 5 * z.a * z.s);
    EXPECT_EQ(of_a_layer(z, {.ranks = 1}), formula + left_out(z, z.s, 1));
  }
}

TEST(TensorMemory, OfALayerOverTensor) {
  for (const Sizes& z : all_sizes)
    for (const int t : {2, 4}) {
      const int64_t formula = z.s * z.b * (10 * z.h + 16 * z.h / t + 5 * z.a * z.s / t);
      EXPECT_EQ(of_a_layer(z, {.ranks = t}), formula + left_out(z, z.s, t));
    }
}

TEST(TensorMemory, OfALayerOverTensorWithSharedTokens) {
  for (const Sizes& z : all_sizes)
    for (const int t : {2, 4}) {
      const int64_t formula = z.s * z.b / t * (26 * z.h + 5 * z.a * z.s);
      const test::Spread regather{.ranks = t, .sequence = true, .regather = true};
      EXPECT_EQ(of_a_layer(z, regather), formula + left_out(z, z.s / t, t));
      // Without gathering twice the outputs of the two norms are kept whole, in 16 bits, and no
      // longer as a share.
      const test::Spread sequence{.ranks = t, .sequence = true};
      const int64_t outputs = 2 * 2 * z.s * z.b * z.h;
      EXPECT_EQ(of_a_layer(z, sequence), formula + outputs - outputs / t + left_out(z, z.s / t, t));
    }
}

}  // namespace
}  // namespace braid::nn::tensor_memory
