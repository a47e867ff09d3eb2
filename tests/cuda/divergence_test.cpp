// SPDX-License-Identifier: BSD-3-Clause
// Checksums of weights on a GPU: whole numbers, so the same as by the same operations on the CPU.
#include "braid/parallel/divergence.h"

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>

#include "parallel/divergence_sum.h"
#include "support/cuda.h"

namespace braid {
namespace {

TEST_F(OnGpu, ChecksumsEqualThoseOfTheCpuBitForBit) {
  std::vector<Param> params;
  std::vector<at::Tensor> expected;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor host = at::arange(-50, 3'000'000, at::kFloat).sin().to(dtype);
    params.push_back({"p", host.to(gpu())});
    expected.push_back(parallel::device_checksum(host));
  }
  const at::Tensor sums = parallel::checksums(params);
  EXPECT_TRUE(sums.is_cuda());
  EXPECT_TRUE(at::equal(sums.cpu(), at::stack(expected)));
  params[2].tensor[77].add_(1);
  EXPECT_FALSE(at::equal(parallel::checksums(params)[2].cpu(), expected[2]));
}

}  // namespace
}  // namespace braid
