// SPDX-License-Identifier: BSD-3-Clause
// Products by the fastest algorithm equal torch's own: whatever lies how in memory.
#include <gtest/gtest.h>

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "support/cuda.h"

namespace braid {
namespace {

class ProductsOnGpu : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (accelerator() != nullptr) accelerator()->tune_products(true);
  }
  void TearDown() override {
    if (accelerator() != nullptr) accelerator()->tune_products(false);
  }
  static at::Tensor some(int64_t rows, int64_t columns, at::ScalarType dtype, bool by_rows = true) {
    const at::Tensor x = by_rows ? at::randn({rows, columns}) : at::randn({columns, rows}).t();
    return x.to(gpu(), dtype, false, false, at::MemoryFormat::Preserve);
  }
  static double away(const at::Tensor& found, const at::Tensor& expected) {
    const at::Tensor wide = expected.to(at::kDouble);
    return found.to(at::kDouble).sub(wide).norm().div(wide.norm()).item<double>();
  }
  static at::Tensor exact(const at::Tensor& a, const at::Tensor& b) {
    return at::mm(a.to(at::kDouble), b.to(at::kDouble));
  }
};

TEST_F(ProductsOnGpu, OfAnyOrderInMemory) {
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    for (const bool left : {true, false})
      for (const bool right : {true, false}) {
        const at::Tensor a = some(1030, 776, dtype, left), b = some(776, 1544, dtype, right);
        const at::Tensor found = at::mm(a, b);
        EXPECT_EQ(found.scalar_type(), dtype);
        EXPECT_LT(away(found, exact(a, b)), 4e-3) << left << right;
        EXPECT_LT(away(at::mm(a, b), found), 1e-6) << "the second time";
      }
}

TEST_F(ProductsOnGpu, WithABiasAndIntoTheirPlace) {
  const at::Tensor a = some(2048, 512, at::kBFloat16), b = some(1024, 512, at::kBFloat16);
  const at::Tensor bias = at::randn({1024}).to(gpu(), at::kBFloat16);
  const at::Tensor expected = exact(a, b.t());
  EXPECT_LT(away(at::linear(a, b, bias), expected.add(bias)), 4e-3);
  at::Tensor sum = some(2048, 1024, at::kBFloat16);
  const at::Tensor all = expected.add(sum);
  EXPECT_LT(away(at::addmm(sum, a, b.t()), all), 4e-3);
  sum.addmm_(a, b.t());
  EXPECT_LT(away(sum, all), 4e-3);
  at::Tensor part = at::empty({2048, 3072}, a.options()).narrow(1, 1024, 1024);
  at::mm_out(part, a, b.t());
  EXPECT_LT(away(part, expected), 4e-3);
}

TEST_F(ProductsOnGpu, InFp32FromSixteenBits) {
  const at::Tensor a = some(512, 4096, at::kBFloat16, false), b = some(4096, 768, at::kBFloat16);
  const at::Tensor found = at::mm(a, b, at::kFloat);
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  EXPECT_LT(away(found, exact(a, b)), 1e-5);
}

TEST_F(ProductsOnGpu, TakeNoMemoryBesidesWhatTorchTakes) {
  const at::Tensor a = some(4096, 1024, at::kBFloat16), b = some(1024, 4096, at::kBFloat16);
  at::Tensor first = at::mm(a, b);
  first = at::Tensor();
  accelerator()->reset_peak(0);
  const int64_t before = accelerator()->requested(0);
  const at::Tensor c = some(4096, 1032, at::kBFloat16), d = some(1032, 4096, at::kBFloat16);
  const int64_t inputs = accelerator()->requested(0) - before;
  const at::Tensor out = at::mm(c, d);  // a shape that is timed here
  EXPECT_EQ(accelerator()->peak_requested(0) - before, inputs + out.numel() * 2);
}

TEST_F(ProductsOnGpu, AreTorchsOwnOnceTheyAreOff) {
  const at::Tensor a = some(1024, 1024, at::kBFloat16), b = some(1024, 1024, at::kBFloat16);
  const at::Tensor tuned = at::mm(a, b);
  accelerator()->tune_products(false);
  EXPECT_LT(away(at::mm(a, b), tuned), 4e-3);
  EXPECT_ANY_THROW(at::mm(a, some(7, 8, at::kBFloat16)));
  accelerator()->tune_products(true);
  EXPECT_ANY_THROW(at::mm(a, some(7, 8, at::kBFloat16)));
}

}  // namespace
}  // namespace braid
