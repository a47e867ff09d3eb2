// SPDX-License-Identifier: BSD-3-Clause
// Random numbers made on the GPU are those of the host.
#include "braid/core/rng.h"

#include <gtest/gtest.h>

#include <ATen/ops/empty.h>

#include "support/cuda.h"

namespace braid {
namespace {

double most_apart(const at::Tensor& found, const at::Tensor& wanted) {
  const at::Tensor gap = found.cpu().to(at::kDouble).sub(wanted.to(at::kDouble)).abs_();
  return gap.div_(wanted.to(at::kDouble).abs().clamp_min(1e-3)).max().item<double>();
}

TEST_F(OnGpu, NormalValuesAreThoseOfTheHost) {
  const RandomKey key = random_key(3, "blocks.0.weight");
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor host = at::empty({1000, 503}, dtype), there = host.to(gpu());
    const NormalOptions options{.mean = 0.1, .std = 0.7, .low = -1, .high = 1};
    fill_normal(host, key, options, 12345);
    fill_normal(there, key, options, 12345);
    const double tolerance = dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 2e-7 : 1e-2;
    EXPECT_LE(most_apart(there, host), tolerance) << dtype;
    const double share = there.cpu().ne(host).to(at::kDouble).mean().item<double>();
    if (dtype != at::kDouble) EXPECT_LE(share, 1e-5) << dtype;
  }
}

TEST_F(OnGpu, UniformValuesAreThoseOfTheHostBitForBit) {
  const RandomKey key = random_key(3, "blocks.0.bias");
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor host = at::empty({100'003}, dtype), there = host.to(gpu());
    fill_uniform(host, key, -0.3, 0.5, 7);
    fill_uniform(there, key, -0.3, 0.5, 7);
    EXPECT_TRUE(there.cpu().equal(host)) << dtype;
  }
}

TEST_F(OnGpu, FillsViewsWithGaps) {
  const at::Tensor whole = at::empty({7, 10}, at::TensorOptions(at::kFloat).device(gpu()));
  whole.zero_();
  const at::Tensor host = at::empty({7, 4}, at::kFloat);
  fill_uniform(whole.narrow(1, 3, 4), random_key(1, "x"), 1, 2);
  fill_uniform(host, random_key(1, "x"), 1, 2);
  EXPECT_TRUE(whole.narrow(1, 3, 4).cpu().equal(host));
  EXPECT_EQ(whole.narrow(1, 0, 3).abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace braid
