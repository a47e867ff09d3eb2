// SPDX-License-Identifier: BSD-3-Clause
// model.kernels: reference under torch's autocast: a dry step takes, to the byte, what the real one
// takes.
#include <gtest/gtest.h>

#include "support/dry_real.h"
#include "support/small_runs.h"

namespace braid {
namespace {

train::RunOptions reference_run(nn::ModelName model, const char* precision) {
  train::RunOptions run = test::small_run(model, precision);
  run.model.kernels = nn::Kernels::reference;
  return run;
}

TEST(ReferenceDryEqualsReal, ToTheByte) {
  for (const auto model : {nn::ModelName::vit, nn::ModelName::swinir})
    for (const char* precision : {"fp32", "bf16"})
      for (const auto again : {memory::Again::none, memory::Again::blocks}) {
        SCOPED_TRACE(std::string(test::name_of(model)) + " " + precision);
        train::RunOptions run = reference_run(model, precision);
        run.memory.recompute = again;
        test::expect_dry_is_real(run);
      }
}

// fp32 softmax and its copy in 16 bits, residual sums in fp32: what explicit casts save.
TEST(ReferenceDryEqualsReal, TakesMoreThanBraidsKernels) {
  for (const auto model : {nn::ModelName::vit, nn::ModelName::swinir}) {
    const c10::Device gpu(c10::kCUDA, 0);
    const train::RunOptions run = reference_run(model, "fp16");
    train::RunOptions own = run;
    own.model.kernels = nn::Kernels::braid;
    EXPECT_GT(train::measure(run, {.device = gpu}).second_step.peak.bytes,
              train::measure(own, {.device = gpu}).second_step.peak.bytes);
  }
}

}  // namespace
}  // namespace braid
