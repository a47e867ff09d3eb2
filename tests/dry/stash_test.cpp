// SPDX-License-Identifier: BSD-3-Clause
// Values that wait for the backward pass in fewer bits or on the host: bytes by formula, and dry
// steps of whole models against real ones.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <vector>

#include "braid/core/rng.h"
#include "braid/kernels/dropout.h"
#include "braid/memory/instruments.h"
#include "braid/memory/stash.h"
#include "braid/train/measure.h"
#include "support/small_runs.h"

namespace braid {
namespace {

using memory::StashFormat;
const c10::Device stash_gpu(c10::kCUDA, 0);
constexpr int64_t stack_rows = 70, width = 31, layers = 4, elements = stack_rows * width;

// x <- dropout(tanh(x w)): a layer keeps its input, the result of tanh and a mask.
at::Tensor run_layers(at::Tensor x, const std::vector<at::Tensor>& weights) {
  for (const at::Tensor& w : weights)
    x = kernels::dropout(x.mm(w).tanh(), {.rate = 0.5, .key = {11}});
  return x;
}

std::vector<at::Tensor> make_weights(const at::TensorOptions& options, bool filled) {
  std::vector<at::Tensor> weights;
  for (int64_t i = 0; i < layers; ++i) {
    weights.push_back(at::zeros({width, width}, options));
    if (filled) fill_normal(weights.back(), random_key(1, "w" + std::to_string(i)), {.std = 0.2});
    weights.back().requires_grad_();
  }
  return weights;
}

// Bytes of one value of `elements` numbers, and of one mask.
struct Formula {
  memory::StashOptions options;
  int64_t number, mask;
};

class StashBytes : public testing::TestWithParam<Formula> {};
INSTANTIATE_TEST_SUITE_P(
    Formats, StashBytes,
    testing::Values(
        Formula{{.format = StashFormat::bf16, .smallest = 0}, 2 * elements, elements},
        Formula{{.format = StashFormat::int8, .smallest = 0},
                elements + 4 * ((elements + 255) / 256),
                elements},
        Formula{{.pack_masks = true, .smallest = 0}, 4 * elements, (elements + 7) / 8},
        Formula{{.format = StashFormat::int8, .pack_masks = true, .smallest = 0},
                elements + 4 * ((elements + 255) / 256),
                (elements + 7) / 8},
        Formula{{.offload = true, .format = StashFormat::bf16, .pack_masks = true, .smallest = 0},
                2 * elements,
                (elements + 7) / 8}));

TEST_P(StashBytes, AreThoseOfTheBits) {
  Formula formula = GetParam();
  formula.options.device = stash_gpu;
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger, .dry = true});
  const auto there = at::TensorOptions().device(stash_gpu);
  const auto weights = make_weights(there, false);
  for (const at::Tensor& w : weights) mark(w, MemoryKind::parameter);
  const auto stash = memory::make_stash(formula.options);
  at::Tensor loss;
  {
    const memory::SavedScope kept(*stash);
    loss = run_layers(at::zeros({stack_rows, width}, there), weights).sum();
  }
  const bool offload = formula.options.offload;
  const memory::KindBytes held =
      ledger.timeline(offload ? memory::pinned_host : memory::cuda()).back().by_kind;
  // mul by a mask keeps the mask, tanh its result, mm its input; the last result nobody keeps.
  EXPECT_EQ(held[static_cast<size_t>(MemoryKind::activation)],
            layers * (2 * formula.number + formula.mask));
  if (!offload) return;
  EXPECT_EQ(stash->traffic().to_host, layers * (2 * formula.number + formula.mask));
  loss.backward();
  // The last two, a result of tanh and a mask, are still there when the backward pass begins.
  EXPECT_EQ(stash->traffic().to_device, stash->traffic().to_host - formula.number - formula.mask);
}

std::vector<at::Tensor> real_gradients(memory::Stash* stash, at::Tensor& loss) {
  const auto weights = make_weights({}, true);
  at::Tensor x = at::empty({stack_rows, width});
  fill_normal(x, random_key(1, "x"));
  {
    const memory::SavedScope kept(stash);
    loss = run_layers(x, weights).square().sum();
  }
  loss.backward();
  std::vector<at::Tensor> grads;
  for (const at::Tensor& w : weights) grads.push_back(w.grad());
  return grads;
}

TEST_P(StashBytes, LeaveTheLossAsItIsAndGradientsCloseToIt) {
  const memory::StashOptions options = GetParam().options;
  const auto stash = memory::make_stash(options);
  at::Tensor wanted_loss, loss;
  const auto wanted = real_gradients(nullptr, wanted_loss);
  const auto got = real_gradients(stash.get(), loss);
  EXPECT_TRUE(at::equal(loss, wanted_loss));
  const double bound = options.format == StashFormat::exact  ? 0
                       : options.format == StashFormat::bf16 ? 0.01
                                                             : 0.03;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = got[i].sub(wanted[i]).norm().item<double>();
    EXPECT_LE(error, bound * wanted[i].norm().item<double>()) << "layer " << i;
    EXPECT_EQ(error > 0, bound > 0) << "layer " << i;  // or nothing was rounded
  }
}

TEST(StashFormats, RoundTripsAreOffByHalfAUnitAtMost) {
  at::Tensor x = at::empty({40, 50});
  fill_normal(x, random_key(1, "x"));
  const auto bf16 = memory::make_stash({.format = StashFormat::bf16, .smallest = 0});
  const auto int8 = memory::make_stash({.format = StashFormat::int8, .smallest = 0});
  // 8 bits of mantissa; 127 steps to the largest of 256 neighbours.
  const at::Tensor off = bf16->put(x.t())->take().sub(x.t()).abs();
  EXPECT_TRUE(off.le(x.t().abs().mul(1.0 / 256)).all().item<bool>());
  EXPECT_LE(int8->put(x)->take().sub(x).abs().max().item<double>(),
            x.abs().max().item<double>() / 253.9);
  // Neither integers, nor statistics of rows, nor what is short already.
  for (const at::Tensor& exact : {x.mul(100).to(c10::kLong), x.amax(1, /*keepdim=*/true)})
    EXPECT_TRUE(at::equal(int8->put(exact)->take(), exact));
  const at::Tensor half = x.to(c10::kBFloat16);
  EXPECT_TRUE(bf16->put(half)->take().is_alias_of(half));
}

struct StashCase {
  nn::ModelName model;
  const char* name;
  memory::MemoryOptions memory;
};

class StashedStep : public testing::TestWithParam<StashCase> {};

TEST_P(StashedStep, DryEqualsRealToTheByte) {
  train::RunOptions run = test::small_run(GetParam().model);
  const int64_t plain = train::measure(run).second_step.peak.bytes;
  run.memory = GetParam().memory;
  const train::Measured real = train::measure(run, {.dry = false}), dry = train::measure(run);
  EXPECT_EQ(dry.backward.without_scratch.bytes, real.backward.without_scratch.bytes);
  EXPECT_EQ(dry.second_step.without_scratch.bytes, real.second_step.without_scratch.bytes);
  EXPECT_EQ(dry.second_step.without_scratch.by_kind, real.second_step.without_scratch.by_kind);
  EXPECT_EQ(dry.second_step.left, real.second_step.left);
  EXPECT_EQ(dry.log.operators().size(), real.log.operators().size());
  if (!run.memory.offloads("activations")) EXPECT_LT(dry.second_step.peak.bytes, plain);
  // On a GPU it is the device's memory that counts.
  train::RunOptions without = run;
  without.memory = {};
  EXPECT_LT(train::measure(run, {.device = stash_gpu}).second_step.peak.bytes,
            train::measure(without, {.device = stash_gpu}).second_step.peak.bytes);
}

std::vector<StashCase> stash_cases() {
  std::vector<StashCase> cases;
  for (const auto model : {nn::ModelName::vit, nn::ModelName::swinir, nn::ModelName::gpt}) {
    cases.push_back({model, "offload", {.offload = {"activations"}}});
    cases.push_back({model, "bf16", {.stash = StashFormat::bf16}});
    cases.push_back({model,
                     "all",
                     {.offload = {"activations"}, .stash = StashFormat::int8, .pack_masks = true}});
  }
  for (const auto model : {nn::ModelName::vit, nn::ModelName::swinir})  // dropout; leaky ReLU
    cases.push_back({model, "masks", {.pack_masks = true}});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, StashedStep, testing::ValuesIn(stash_cases()),
                         [](const auto& info) {
                           return std::string(test::name_of(info.param.model)) + "_" +
                                  info.param.name;
                         });

}  // namespace
}  // namespace braid
