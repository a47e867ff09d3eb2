// SPDX-License-Identifier: BSD-3-Clause
// Dry tensors: the keys of a device, sizes, no data, and the same graph as on the device.
#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "braid/core/dry.h"
#include "braid/core/error.h"
#include "braid/memory/instruments.h"
#include "support/expect.h"

namespace braid::memory {
namespace {

using test::contains;
using test::error_of;

const c10::Device gpu(c10::kCUDA, 0);

TEST(Dry, FactoriesMakeTensorsWithTheKeysOfTheirDeviceAndNoData) {
  const Instruments dry({.dry = true});
  const at::Tensor x = at::zeros({3, 4}, at::TensorOptions().device(gpu));
  EXPECT_TRUE(is_dry(x));
  EXPECT_TRUE(x.is_cuda());
  EXPECT_EQ(x.device(), gpu);
  EXPECT_EQ(x.sizes(), (c10::IntArrayRef{3, 4}));
  EXPECT_EQ(x.storage().nbytes(), 48u);
  EXPECT_TRUE(at::ones({2}).is_cpu());
}

TEST(Dry, ViewsShareOneStorage) {
  const Instruments dry({.dry = true});
  const at::Tensor x = at::zeros({4, 6});
  const at::Tensor y = x.t().narrow(0, 1, 2);
  EXPECT_TRUE(y.is_alias_of(x));
  EXPECT_EQ(y.strides(), (c10::IntArrayRef{1, 6}));
  EXPECT_EQ(y.storage_offset(), 1);
}

TEST(Dry, BackwardGivesDryGradientsOnTheDevice) {
  // Autograd makes its queues at the first backward pass of a process; that may be a plain one.
  at::ones({2}).requires_grad_().sum().backward();
  const Instruments dry({.dry = true});
  const at::Tensor w = at::ones({4, 5}, at::TensorOptions().device(gpu)).requires_grad_();
  at::matmul(at::ones({3, 4}, w.options()), w).sum().backward();
  ASSERT_TRUE(w.grad().defined());
  EXPECT_TRUE(is_dry(w.grad()));
  EXPECT_EQ(w.grad().sizes(), w.sizes());
  EXPECT_TRUE(w.grad().is_cuda());
}

TEST(Dry, RealTensorsPassThrough) {
  const at::Tensor real = at::ones({2, 2});
  const Instruments dry({.dry = true});
  const at::Tensor sum = real.add(real);
  EXPECT_FALSE(is_dry(sum));
  EXPECT_EQ(sum.sum().item<float>(), 8);
  EXPECT_TRUE(is_dry(real.to(gpu)));             // a copy to a device that is not there
  EXPECT_TRUE(is_dry(real.add(at::ones({2}))));  // a dry operand makes the result dry
}

TEST(Dry, ReadingAValueStopsWithASentence) {
  const Instruments dry({.dry = true});
  const at::Tensor x = at::ones({1});
  const ModuleScope here("blocks.3.attn");
  const std::string text = error_of([&] { x.item<float>(); });
  EXPECT_TRUE(contains(text, "a value is read in a dry run")) << text;
  EXPECT_TRUE(contains(text, "blocks.3.attn")) << text;
  EXPECT_TRUE(contains(text, "no item()")) << text;
  EXPECT_TRUE(contains(error_of([&] { x.equal(x); }), "a value is read in a dry run"));
}

TEST(Dry, CopyingIntoARealTensorIsReadingToo) {
  const at::Tensor real = at::ones({2});
  const Instruments dry({.dry = true});
  EXPECT_TRUE(contains(error_of([&] { real.copy_(at::zeros({2})); }), "a value is read"));
}

TORCH_LIBRARY(braid_dry_test, library) { library.def("mystery(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(braid_dry_test, CPU, library) {
  library.impl("mystery", [](const at::Tensor& x) { return x.clone(); });
}

TEST(Dry, AnOperatorWithoutMetaKernelIsNamedWithItsModule) {
  static const auto mystery = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("braid_dry_test::mystery", "")
                                  .typed<at::Tensor(const at::Tensor&)>();
  const Instruments dry({.dry = true});
  const ModuleScope here("blocks.7.mlp");
  const std::string text = error_of([&] { mystery.call(at::ones({2})); });
  EXPECT_TRUE(contains(text, "braid_dry_test::mystery without a Meta kernel")) << text;
  EXPECT_TRUE(contains(text, "in module blocks.7.mlp")) << text;
}

TEST(Dry, AParameterBecomesRealWholeOrAsAShardAndKeepsItsHooks) {
  for (const int64_t rows : {4, 2}) {
    at::Tensor weight;
    {
      const Instruments dry({.dry = true});
      weight = at::ones({4, 3}).requires_grad_();
    }
    int calls = 0;
    weight.register_hook([&](const at::Tensor& grad) { calls += grad.size(0) == rows; });
    const c10::TensorImpl* identity = weight.unsafeGetTensorImpl();
    materialize(weight, at::ones({rows, 3}));
    EXPECT_EQ(weight.unsafeGetTensorImpl(), identity);
    EXPECT_TRUE(has_data(weight));
    weight.mul(2).sum().backward();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(weight.grad().sum().item<float>(), 2.0f * 3 * rows);
  }
  EXPECT_TRUE(contains(error_of([] { materialize(at::ones({1}), at::ones({1})); }), "is not dry"));
}

TEST(Dry, ReleasedMemoryIsTakenAgainUnderTheSameViews) {
  for (const bool dry : {false, true}) {
    Ledger ledger;
    const Instruments on({.ledger = &ledger, .dry = dry});
    const at::Tensor flat = at::zeros({100});
    const at::Tensor view = flat.view({10, 10});
    EXPECT_EQ(ledger.live(cpu), 400);
    release(flat);
    EXPECT_EQ(ledger.live(cpu), 0);
    if (dry) EXPECT_TRUE(contains(error_of([&] { view.add(1); }), "a released dry tensor is used"));
    acquire(flat, 400);
    EXPECT_EQ(ledger.live(cpu), 400);
    EXPECT_EQ(view.add(1).sizes(), view.sizes());
  }
}

}  // namespace
}  // namespace braid::memory
