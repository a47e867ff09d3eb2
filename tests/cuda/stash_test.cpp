// SPDX-License-Identifier: BSD-3-Clause
// Values that wait on the host while a real GPU computes: bits, bytes, and kernels against their
// CPU twins.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "braid/core/rng.h"
#include "braid/kernels/masks.h"
#include "braid/memory/instruments.h"
#include "braid/memory/stash.h"
#include "braid/train/measure.h"
#include "support/cuda.h"
#include "support/small_runs.h"

namespace braid {
namespace {

at::Tensor drawn(at::IntArrayRef sizes, std::string_view name,
                 c10::ScalarType dtype = c10::kFloat) {
  at::Tensor values = at::empty(sizes, dtype);
  fill_normal(values, random_key(3, name));
  return values;
}

struct Layers {
  explicit Layers(c10::Device device) : x(drawn({512, 1024}, "x").to(device)) {
    for (int i = 0; i < 12; ++i)
      weights.push_back(
          drawn({1024, 1024}, "w" + std::to_string(i)).mul_(0.03).to(device).requires_grad_());
  }
  std::vector<at::Tensor> gradients(memory::Stash* stash) {
    at::Tensor loss;
    {
      const memory::SavedScope kept(stash);
      at::Tensor y = x;
      for (const at::Tensor& w : weights) y = y.mm(w).tanh();
      loss = y.square().sum();
    }
    loss.backward();
    std::vector<at::Tensor> grads;
    for (at::Tensor& w : weights) {
      grads.push_back(w.grad());
      w.mutable_grad().reset();
    }
    return grads;
  }
  at::Tensor x;
  std::vector<at::Tensor> weights;
};

constexpr int64_t value_bytes = 512 * 1024 * 4;

TEST_F(OnGpu, OffloadedGradientsAreThoseWithoutToTheBit) {
  Layers layers(gpu());
  const auto wanted = layers.gradients(nullptr);
  for (const int64_t window : {1, 2, 5}) {
    const auto stash = memory::make_stash({.offload = true, .window = window, .device = gpu()});
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto got = layers.gradients(stash.get());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << i;
    }
    // x, 12 results of tanh; the square keeps the last one, too, which is the same memory.
    EXPECT_EQ(stash->traffic().to_host, 5 * 13 * value_bytes);
    EXPECT_EQ(stash->traffic().to_device, 5 * (13 - window) * value_bytes);
  }
}

TEST_F(OnGpu, WhatLeavesTheDeviceLiesInPageLockedMemory) {
  Layers layers(gpu());
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger});
  const auto stash = memory::make_stash({.offload = true, .device = gpu()});
  std::vector<std::shared_ptr<memory::Stashed>> held;
  for (int i = 0; i < 8; ++i) held.push_back(stash->put(layers.x.add(i)));
  EXPECT_EQ(ledger.live(memory::pinned_host), 8 * value_bytes);
  EXPECT_EQ(ledger.live(memory::cuda(0)), 2 * value_bytes);
  for (int i = 7; i >= 0; --i) {
    EXPECT_TRUE(at::equal(held.back()->take(), layers.x.add(i)));
    held.pop_back();
    EXPECT_LE(ledger.live(memory::cuda(0)), 2 * value_bytes);
  }
  EXPECT_EQ(ledger.live(memory::pinned_host), 0);
  EXPECT_EQ(ledger.live(memory::cuda(0)), 0);
}

TEST_F(OnGpu, DryStepsWithAStashTakeWhatRealOnesTake) {
  for (const auto model : {nn::ModelName::gpt, nn::ModelName::vit, nn::ModelName::swinir})
    for (const auto format : {memory::StashFormat::exact, memory::StashFormat::int8})
      for (const bool offload : {true, false}) {
        train::RunOptions run = test::small_run(model);
        run.memory.stash = format;
        run.memory.pack_masks = true;
        if (offload) run.memory.offload = {"activations"};
        const auto real = train::measure(run, {.device = gpu(), .dry = false});
        const auto dry = train::measure(run, {.device = gpu()});
        EXPECT_EQ(dry.second_step.without_scratch.bytes, real.second_step.without_scratch.bytes)
            << test::name_of(model) << " " << static_cast<int>(format) << " " << offload;
        EXPECT_EQ(dry.second_step.left, real.second_step.left);
      }
}

TEST_F(OnGpu, BitsAndBlocksEqualTheirCpuTwins) {
  for (const int64_t count : {1, 7, 255, 256, 100003}) {
    for (const auto dtype : {c10::kFloat, c10::kDouble, c10::kBFloat16, c10::kHalf}) {
      const at::Tensor x = drawn({count}, "x", dtype), there = x.to(gpu());
      const at::Tensor bits = kernels::pack_bits(x);
      EXPECT_TRUE(at::equal(kernels::pack_bits(there).cpu(), bits));
      EXPECT_TRUE(at::equal(kernels::unpack_bits(bits.to(gpu()), {count}).cpu(), x.gt(0)));
      const kernels::Blocks host = kernels::quantize_blocks(x);
      const kernels::Blocks device = kernels::quantize_blocks(there);
      EXPECT_TRUE(at::equal(device.codes.cpu(), host.codes));
      EXPECT_TRUE(at::equal(device.scales.cpu(), host.scales));
      EXPECT_TRUE(at::equal(kernels::dequantize_blocks(device, dtype).cpu(),
                            kernels::dequantize_blocks(host, dtype)));
    }
  }
}

TEST_F(OnGpu, PackedReluHasTheGradientsOfTorch) {
  const at::Tensor x = drawn({300, 77}, "x").to(gpu()).requires_grad_();
  const at::Tensor grad = drawn({300, 77}, "grad").to(gpu());
  x.relu().backward(grad);
  const at::Tensor wanted = x.grad().clone();
  x.mutable_grad().reset();
  kernels::relu(x, /*packed=*/true).backward(grad);
  EXPECT_TRUE(at::equal(x.grad(), wanted));
}

TEST_F(OnGpu, AMemoryLimitIsKept) {
  const DeviceMemory before = accelerator()->memory(0);
  EXPECT_LE(before.allocated, before.reserved);
  EXPECT_LE(before.largest_free, before.reserved - before.allocated);
  accelerator()->limit_memory(0, before.reserved + (64 << 20));
  const auto there = at::TensorOptions().device(gpu());
  EXPECT_THROW(at::zeros({1 << 30}, there), c10::OutOfMemoryError);
  accelerator()->limit_memory(0, 0);
  EXPECT_NO_THROW(at::zeros({1 << 28}, there));
}

}  // namespace
}  // namespace braid
