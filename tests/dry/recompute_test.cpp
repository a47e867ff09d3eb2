// SPDX-License-Identifier: BSD-3-Clause
// Models with recompute: gradients to the bit, also with dropout and drop-path; the dry run takes
// what the real one takes; the arithmetic that is done again is what the choice says.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>

#include "braid/kernels/attention.h"
#include "braid/memory/recompute.h"
#include "braid/nn/model.h"
#include "braid/train/measure.h"
#include "memory/recompute_stack.h"
#include "support/small_runs.h"
#include "train/step_parts.h"

namespace braid {
namespace {

using memory::Again;

struct Choice {
  nn::ModelName model;
  Again what;
  int64_t segment;
  const char* name;
  const char* precision = "fp32";
};

void PrintTo(const Choice& choice, std::ostream* out) {
  *out << test::name_of(choice.model) << " " << choice.name;
}

train::RunOptions run_of(const Choice& choice) {
  train::RunOptions run = test::tiny_run(choice.model, choice.precision);
  run.memory.recompute = choice.what;
  run.memory.segment = choice.segment;
  run.memory.check_recompute = true;
  return run;
}

at::Tensor filled(const at::Tensor& like) {
  const at::Tensor count = at::arange(like.numel()).view(like.sizes());
  return c10::isIntegralType(like.scalar_type(), true)
             ? count.remainder(4).to(like.scalar_type())
             : count.to(c10::kDouble).sin().to(like.scalar_type());
}

struct Gradients {
  at::Tensor loss;
  std::map<std::string, at::Tensor> of;
  memory::RecomputeCounts counts;
};

Gradients gradients_of(const train::RunOptions& run) {
  const auto model = nn::make_model(run.model, {.seed = 3, .precision = policy_of(run.train)});
  train::StepParts parts(*model, run, c10::kCPU);
  data::Batch batch = train::empty_batch(run, *run.train.global_batch, c10::kCPU);
  batch.input = filled(batch.input);
  batch.target = filled(batch.target);
  Gradients all;
  all.loss = parts.step.gradients(batch, {.training = true, .seed = 5, .step = 7}).loss;
  for (const Param& param : model->params()) all.of[param.name] = param.tensor.grad();
  if (parts.recompute != nullptr) all.counts = parts.recompute->counts();
  return all;
}

class RecomputeOf : public testing::TestWithParam<Choice> {
 protected:
  train::RunOptions plain() const {
    Choice choice = GetParam();
    choice.what = Again::none;
    choice.segment = 1;
    return run_of(choice);
  }
  train::RunOptions chosen() const { return run_of(GetParam()); }
};

TEST_P(RecomputeOf, GradientsAreEqualToTheBit) {
  const Gradients kept = gradients_of(plain()), again = gradients_of(chosen());
  EXPECT_TRUE(kept.loss.equal(again.loss));
  for (const auto& [name, gradient] : kept.of) {
    ASSERT_EQ(gradient.defined(), again.of.at(name).defined()) << name;
    if (gradient.defined()) EXPECT_TRUE(gradient.equal(again.of.at(name))) << name;
  }
  EXPECT_GT(again.counts.segments, 0);
  EXPECT_EQ(again.counts.again, again.counts.segments);
  EXPECT_EQ(again.counts.kept > 0, GetParam().what == Again::matmuls);
}

TEST_P(RecomputeOf, TheDryRunTakesWhatTheRealOneTakes) {
  const train::Phase dry = train::measure(chosen(), {.dry = true}).second_step;
  const train::Phase real = train::measure(chosen(), {.dry = false}).second_step;
  EXPECT_EQ(dry.without_scratch.bytes, real.without_scratch.bytes);
  EXPECT_EQ(dry.without_scratch.by_kind, real.without_scratch.by_kind);
  EXPECT_EQ(dry.left, real.left);
}

std::vector<Choice> choices() {
  std::vector<Choice> all;
  for (const auto model :
       {nn::ModelName::vit, nn::ModelName::swinir, nn::ModelName::gpt, nn::ModelName::llama}) {
    all.push_back({model, Again::blocks, 1, "blocks"});
    all.push_back({model, Again::blocks, 0, "root"});
    all.push_back({model, Again::blocks, 3, "threes"});
    all.push_back({model, Again::attention, 1, "attention"});
    all.push_back({model, Again::matmuls, 1, "matmuls"});
  }
  all.push_back({nn::ModelName::mlp, Again::blocks, 1, "blocks"});
  all.push_back({nn::ModelName::gpt, Again::blocks, 1, "blocks_bf16", "bf16"});
  all.push_back({nn::ModelName::gpt, Again::matmuls, 1, "matmuls_bf16", "bf16"});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Models, RecomputeOf, testing::ValuesIn(choices()), [](const auto& info) {
  return std::string(test::name_of(info.param.model)) + "_" + info.param.name;
});

int64_t activations(const train::RunOptions& run, c10::Device device) {
  const train::Measured measured = train::measure(run, {.device = device});
  return measured.backward.peak.bytes - measured.backward.before;
}

TEST(RecomputeModels, EachChoiceTakesLessThanTheOneBefore) {
  train::RunOptions run = test::small_run(nn::ModelName::gpt);
  run.model.gpt = {.vocabulary = 32,
                   .sequence = 64,
                   .layers = 16,
                   .heads = 4,
                   .width = 32,
                   .dropout = 0.1};  // attention is written out
  run.data.sequence = 64;
  for (const c10::Device device : {c10::Device(c10::kCPU), c10::Device(c10::kCUDA, 0)}) {
    int64_t before = activations(run, device);
    for (const Again what : {Again::attention, Again::matmuls, Again::blocks}) {
      run.memory.recompute = what;
      const int64_t bytes = activations(run, device);
      EXPECT_LT(bytes, before) << static_cast<int>(what);
      before = bytes;
    }
    run.memory.recompute = Again::none;
  }
}

struct Work {
  double again = 0;   // FLOPs
  int attention = 0;  // kernels that ran again
};

Work work_of(train::RunOptions run, Again what) {
  run.memory.recompute = what;
  Work work;
  const memory::OperatorLog log = train::log_step(run);
  for (const memory::Operator& op : log.operators()) {
    if (op.recomputed) work.again += op.flops;
    work.attention += op.recomputed && op.name.find("scaled_dot_product") != std::string::npos;
  }
  return work;
}

TEST(RecomputeModels, ArithmeticIsDoneAgainButForTheLastProductOfABlock) {
  const train::RunOptions run = test::small_run(nn::ModelName::gpt);
  const nn::GptOptions& gpt = run.model.gpt;
  const auto tokens = static_cast<double>(*run.train.global_batch * gpt.sequence);
  const auto width = static_cast<double>(gpt.width), sequence = static_cast<double>(gpt.sequence);
  // Of 12 width^2 multiply-adds a token the last 4 are left out; scores and weighted sum are done.
  const double layer = 2 * tokens * 8 * width * width + 4 * tokens * sequence * width;
  const Work blocks = work_of(run, Again::blocks), matmuls = work_of(run, Again::matmuls);
  EXPECT_EQ(work_of(run, Again::none).again, 0);
  EXPECT_EQ(blocks.again, static_cast<double>(gpt.layers) * layer);  // 18,874,368
  EXPECT_EQ(blocks.attention, gpt.layers);
  EXPECT_LT(matmuls.again, 0.6 * blocks.again);
  EXPECT_EQ(matmuls.attention, 0);
}

TEST(RecomputeModels, TheClosedFormOfAStackOfReluBlocks) {
  using namespace memory::test_stack;
  for (const bool dry : {false, true})
    for (const int64_t k : {1, 3, 9})
      EXPECT_EQ(peak_of({.blocks = 9, .segment = k, .dry = dry, .relu = true}), closed_form(9, k));
}

TEST(RecomputeModels, DropoutAndDropPathReplayInALibraryProgram) {
  const RandomKey key = random_key(3, "blocks.0").with(7);
  const auto block = [key](const std::vector<at::Tensor>& in) {
    const at::Tensor y = kernels::attention(in[0], in[1], in[2],
                                            {.causal = true, .drop = {.rate = 0.2, .key = key}});
    return kernels::drop_path(kernels::dropout(y.exp(), {.rate = 0.3, .key = key}),
                              {.rate = 0.5, .key = key})
        .sin();
  };
  const auto gradients = [&](bool again) {
    std::vector<at::Tensor> in;
    for (int i = 0; i < 3; ++i)
      in.push_back(
          at::arange(2 * 2 * 5 * 4.0).add(i).sin().view({2, 2, 5, 4}).detach().requires_grad_());
    (again ? memory::recompute(block, in, {.check = true}) : block(in)).sum().backward();
    return std::vector<at::Tensor>{in[0].grad(), in[1].grad(), in[2].grad()};
  };
  const auto plain = gradients(false), again = gradients(true);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(plain[i].equal(again[i]));
}

}  // namespace
}  // namespace braid
