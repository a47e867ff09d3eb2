// SPDX-License-Identifier: BSD-3-Clause
// What only a GPU can show. Without one every test here is skipped, counted and printed as skipped.
#include <gtest/gtest.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "braid/core/accelerator.h"
#include "braid/data/options.h"
#include "braid/kernels/attention.h"
#include "braid/kernels/cross_entropy.h"
#include "braid/kernels/dropout.h"
#include "braid/train/step.h"
#include "support/cuda.h"

namespace braid {
namespace {

TEST_F(OnGpu, KeepMaskEqualsItsCpuTwinBitForBit) {
  const at::Tensor host = at::empty({7, 1031});
  const at::Tensor expected = kernels::keep_mask(host, 0.3, random_key(1, "mask"), 12345);
  const at::Tensor mask = kernels::keep_mask(host.to(gpu()), 0.3, random_key(1, "mask"), 12345);
  EXPECT_TRUE(at::equal(mask.to(at::kCPU), expected));
}

TEST_F(OnGpu, CrossEntropyEqualsItsCpuTwin) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor scores = at::randn({37, 5003}, at::kDouble).mul_(4).to(dtype);
    const at::Tensor target = at::randint(5003, {37}, at::kLong);
    target[5] = -100;
    const at::Tensor sums = kernels::row_logsumexp(scores);
    const at::Tensor grad = at::randn({37}, sums.options());
    const at::Tensor expected = kernels::cross_entropy_grad(grad, scores, sums, target, 3);
    const at::Tensor sums_gpu = kernels::row_logsumexp(scores.to(gpu()));
    const at::Tensor found = kernels::cross_entropy_grad(grad.to(gpu()), scores.to(gpu()), sums_gpu,
                                                         target.to(gpu()), 3);
    const double tolerance = dtype == at::kDouble ? 1e-13 : 1e-5;
    EXPECT_TRUE(at::allclose(sums_gpu.cpu(), sums, tolerance, tolerance)) << dtype;
    const double rounding = dtype == at::kBFloat16 ? 8e-3 : dtype == at::kHalf ? 1e-3 : tolerance;
    EXPECT_TRUE(at::allclose(found.cpu(), expected, rounding, tolerance)) << dtype;
    EXPECT_EQ(found.scalar_type(), dtype);
  }
}

class AttentionOnGpu : public OnGpu,
                       public testing::WithParamInterface<std::tuple<at::ScalarType, int64_t>> {};

TEST_P(AttentionOnGpu, EqualsTheOneOnTheCpu) {
  const auto [dtype, width] = GetParam();
  const at::Tensor q = at::randn({2, 4, 96, width}), k = at::randn({2, 2, 96, width}),
                   v = at::randn({2, 2, 96, width});
  const auto on_gpu = [&, type = dtype](const at::Tensor& x) { return x.to(gpu(), type); };
  const at::Tensor expected = kernels::attention(q, k, v, {.causal = true});
  const at::Tensor found = kernels::attention(on_gpu(q), on_gpu(k), on_gpu(v), {.causal = true});
  const double tolerance = dtype == at::kDouble || dtype == at::kFloat ? 1e-5 : 3e-2;
  EXPECT_TRUE(at::allclose(found.to(at::kCPU, at::kFloat), expected, tolerance, tolerance))
      << kernels::to_text(kernels::attention_kernel(on_gpu(q), on_gpu(v), {.causal = true}));
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionOnGpu,
                         testing::Combine(testing::Values(at::kDouble, at::kFloat, at::kBFloat16,
                                                          at::kHalf),
                                          testing::Values(int64_t{48}, int64_t{30}, int64_t{64})));

TEST_F(OnGpu, LoaderBringsTheSameBatchesAsOnTheCpu) {
  data::DataOptions options{.kind = data::Kind::synthetic,
                            .input_shape = {3, 8, 8},
                            .target_shape = {3, 8, 8},
                            .samples = 37};
  const auto source = data::open_source(options, data::Split::train, 1);
  data::Loader host(source, {.global_batch = 4, .workers = 2, .seed = 5});
  data::Loader device(source, {.global_batch = 4, .workers = 2, .seed = 5, .device = 0});
  for (int epoch = 0; epoch < 3; ++epoch) {
    while (auto expected = host.next()) {
      const auto batch = device.next();
      ASSERT_TRUE(batch.has_value());
      EXPECT_TRUE(batch->input.is_cuda());
      EXPECT_TRUE(at::equal(batch->input.to(at::kCPU), expected->input));
      EXPECT_TRUE(at::equal(batch->target.to(at::kCPU), expected->target));
    }
    EXPECT_FALSE(device.next().has_value());
  }
}

}  // namespace
}  // namespace braid
