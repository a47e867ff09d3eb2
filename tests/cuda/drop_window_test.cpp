// SPDX-License-Identifier: BSD-3-Clause
// Masks of a part of a batch on the GPU.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "braid/kernels/dropout.h"
#include "support/cuda.h"

namespace braid {
namespace {

TEST_F(OnGpu, MasksOfAPartEqualTheirCpuTwinsBitForBit) {
  const at::Tensor host = at::empty({3, 4, 100, 57});
  const kernels::Drop drop = {
      .rate = 0.3,
      .key = random_key(1, "mask"),
      .first_sample = int64_t{1} << 31,
      .windows = {{1, 8, {{4, 8}}}, {2, 400, {{0, 50}, {350, 400}}}, {3, 60, {{1, 20}, {22, 60}}}}};
  const at::Tensor expected = kernels::keep_mask(host, drop);
  EXPECT_TRUE(at::equal(kernels::keep_mask(host.to(gpu()), drop).to(at::kCPU), expected));
}

}  // namespace
}  // namespace braid
