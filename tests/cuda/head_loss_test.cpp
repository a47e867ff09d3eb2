// SPDX-License-Identifier: BSD-3-Clause
// Head and cross-entropy in one go on the GPU against the CPU in fp64.
#include "braid/kernels/head_loss.h"

#include <gtest/gtest.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>

#include "support/cuda.h"
#include "support/drawn.h"

namespace braid {
namespace {

struct HeadOnGpu {
  at::Tensor x, weight, target;
};

HeadOnGpu head_on(c10::Device device, int64_t classes, c10::ScalarType dtype,
                  c10::ScalarType weight_dtype) {
  const int64_t rows = 300, width = 64;
  HeadOnGpu c;
  // In 16 bits already: what is compared is the kernels' rounding.
  c.x = test::drawn({rows, width}, 1, "x").to(c10::kBFloat16).to(device, dtype);
  c.weight = test::drawn({classes, width}, 1, "w").mul(0.2).to(c10::kBFloat16);
  c.weight = c.weight.to(device, weight_dtype);
  c.target = test::drawn({rows}, 1, "t").abs().mul(1e5).to(c10::kLong).remainder(classes);
  c.target[2] = -100;
  c.target = c.target.to(device);
  c.x.requires_grad_(true);
  c.weight.requires_grad_(true);
  return c;
}

double distance(const at::Tensor& found, const at::Tensor& wanted) {
  const at::Tensor difference = found.cpu().to(c10::kDouble).sub(wanted);
  return difference.norm().div(wanted.norm()).item<double>();
}

TEST_F(OnGpu, HeadLossEqualsItsCpuTwin) {
  using at::kBFloat16, at::kDouble, at::kFloat, at::kHalf;
  for (const int64_t classes : {1, 13, 5003, 50257, 128256}) {
    if (emulated_gpu && classes > 5003) continue;
    for (const auto& [dtype, weight_dtype] :
         {std::pair(kDouble, kDouble), std::pair(kFloat, kFloat), std::pair(kBFloat16, kFloat),
          std::pair(kBFloat16, kBFloat16), std::pair(kHalf, kFloat)}) {
      const HeadOnGpu wanted = head_on(c10::kCPU, classes, kDouble, kDouble);
      const HeadOnGpu found = head_on(gpu(), classes, dtype, weight_dtype);
      const at::Tensor before = kernels::head_loss(wanted.x, wanted.weight, wanted.target, {});
      const at::Tensor sum = kernels::head_loss(found.x, found.weight, found.target, {.rows = 128});
      const double tolerance = dtype == kDouble ? 1e-12 : dtype == kFloat ? 1e-5 : 1e-2;
      EXPECT_NEAR(sum.item<double>(), before.item<double>(),
                  tolerance * (1 + before.item<double>()))
          << classes << dtype;
      before.div(299).backward();
      sum.div(299).backward();
      if (classes == 1) continue;  // no gradient
      EXPECT_LE(distance(found.x.grad(), wanted.x.grad()), tolerance) << classes << dtype;
      EXPECT_LE(distance(found.weight.grad(), wanted.weight.grad()), tolerance) << classes << dtype;
    }
  }
}

TEST_F(OnGpu, CrossEntropyInPlaceHoldsExtremeRows) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor scores = test::drawn({4, 1001}, 1, "s").to(dtype);
    scores[0].fill_(-infinity);
    scores[1].narrow(0, 1, 1000).fill_(-infinity);
    scores[2].fill_(3e4);
    const at::Tensor target = at::zeros({4}, c10::kLong), losses = at::empty({4}, c10::kFloat);
    target[0] = -100;
    const at::Tensor weight = at::full({}, 0.5, c10::kFloat);
    const at::Tensor there = scores.to(gpu()), losses_there = losses.to(gpu());
    kernels::cross_entropy_in_place(scores, losses, target, weight, -100);
    kernels::cross_entropy_in_place(there, losses_there, target.to(gpu()), weight.to(gpu()), -100);
    EXPECT_TRUE(at::allclose(losses_there.cpu(), losses, 1e-5, 1e-5)) << dtype;
    EXPECT_TRUE(at::allclose(there.cpu(), scores, 1e-2, 1e-6)) << dtype;
  }
}

TEST_F(OnGpu, ScaleInPlaceTakesAnySize) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t shift : {0, 1}) {
      const at::Tensor x = test::drawn({10'007}, 1, "x").to(gpu(), dtype);
      const at::Tensor part = x.narrow(0, shift, 10'000), wanted = part.mul(0.5);
      const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
      kernels::scale_in_place(part, at::full({}, 0.5, x.options().dtype(wide)));
      EXPECT_TRUE(part.equal(wanted));
    }
}

}  // namespace
}  // namespace braid
