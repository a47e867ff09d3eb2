// SPDX-License-Identifier: BSD-3-Clause
// The course's large models on dry tensors: one rank of a layout, without its memory.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "braid/comm/counting.h"
#include "braid/core/dry.h"
#include "braid/memory/instruments.h"
#include "braid/nn/options.h"

namespace braid::nn {
namespace {

VitOptions mp(int64_t patch) { return {.patch = patch, .width = 1536}; }

struct DryRun {
  int64_t parameters = 0, peak = 0;
  std::vector<int64_t> output;
  std::shared_ptr<comm::Traffic> traffic = std::make_shared<comm::Traffic>();
  comm::Group rank_of(int size) const {
    return comm::Group(comm::counting(comm::dry(1, size), traffic));
  }

  // A sample forward and backward, in bf16.
  void run(const VitOptions& options, const Layout& layout) {
    memory::Ledger ledger;
    const memory::Instruments dry({.ledger = &ledger, .dry = true});
    const auto model = make_vit(options, {.precision = precision("bf16"), .layout = layout});
    parameters = model->parameters();
    const at::Tensor image = at::zeros({1, 20, 360, 720});
    const at::Tensor y = model->forward(image, {.training = true});
    output = y.sizes().vec();
    loss(Loss::relative_l2, y, model->local_target(image), model->loss_share()).backward();
    for (const Param& param : model->params())
      EXPECT_TRUE(is_dry(param.tensor.grad())) << param.name;
    peak = ledger.highest(memory::cpu);
  }
};

TEST(VitDry, TensorParallelRanksHaveTheParametersOfTheCourse) {
  DryRun dry;
  dry.run(mp(8), {.tensor = dry.rank_of(4)});
  EXPECT_EQ(dry.parameters, 95'235'072);
  EXPECT_EQ(dry.output, (std::vector<int64_t>{1, 20, 360, 720}));
  // Two sums forward and two backward a block, where the course has four.
  EXPECT_EQ(dry.traffic->calls(comm::Kind::all_reduce), 12 * 4);
}

TEST(VitDry, MpPatch4RunsOnFourRanksOfTensor) {
  DryRun one, split, shared;
  one.run(mp(4), {});
  split.run(mp(4), {.tensor = split.rank_of(4)});
  shared.run(mp(4), {.tensor = shared.rank_of(4), .sequence = true});
  EXPECT_EQ(one.parameters, 365'849'088);
  EXPECT_EQ(split.parameters, 365'849'088 - (350'135'808 - 95'235'072));
  EXPECT_LT(7 * split.peak, 4 * one.peak);  // what is not kept would have been shared, too
  EXPECT_LT(4 * shared.peak, 3 * split.peak) << "norms and residuals are shared, too";
}

TEST(VitDry, MpPatch4RunsOnFourRanksOfContext) {
  for (const auto method : {parallel::ContextMethod::gather, parallel::ContextMethod::ring,
                            parallel::ContextMethod::all_to_all}) {
    DryRun dry;
    dry.run(mp(4), {.context = dry.rank_of(4), .method = method});
    EXPECT_EQ(dry.parameters, 365'849'088);
    EXPECT_EQ(dry.output, (std::vector<int64_t>{1, 4050, 20 * 4 * 4}));
    EXPECT_GT(dry.traffic->wire_bytes(), 0);
  }
}

}  // namespace
}  // namespace braid::nn
