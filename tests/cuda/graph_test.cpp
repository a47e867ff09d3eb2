// SPDX-License-Identifier: BSD-3-Clause
// A run whose steps are replayed as CUDA graphs is the run without them, bit for bit.
#include "train/graph.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/cuda.h"
#include "train/run.h"

namespace braid::train {
namespace {

using Sets = std::vector<std::string>;
using test::contains;

const Sets on_gpu = {"train.device=cuda", "train.steps=12", "data.workers=2",
                     "optimizer.schedule=cosine", "optimizer.warmup=3"};

Sets with(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

class Graphs : public OnGpu {
 protected:
  // The same run with and without graphs.
  static void expect_same_run(const std::string& yaml, const Sets& sets) {
    TestRun plain(run_of(yaml, with(with(on_gpu, sets), {"train.graph=off"})));
    TestRun graph(run_of(yaml, with(with(on_gpu, sets), {"train.graph=on"})));
    plain.trainer.fit();
    graph.trainer.fit();
    EXPECT_TRUE(contains(graph.lines(), "replayed as a CUDA graph"));
    expect_same_bits(plain.weights(), graph.weights());
    ASSERT_EQ(plain.sink.steps.size(), graph.sink.steps.size());
    for (size_t i = 0; i < plain.sink.steps.size(); ++i) {
      EXPECT_EQ(plain.sink.steps[i].loss, graph.sink.steps[i].loss) << i;
      EXPECT_EQ(plain.sink.steps[i].grad_norm, graph.sink.steps[i].grad_norm) << i;
      EXPECT_EQ(plain.sink.steps[i].loss_scale, graph.sink.steps[i].loss_scale) << i;
    }
  }
};

TEST_F(Graphs, Gpt) { expect_same_run(gpt_run, {"train.clip=1"}); }

TEST_F(Graphs, VitInBf16) { expect_same_run(vit_run, {"train.precision=bf16", "train.clip=0.5"}); }

TEST_F(Graphs, Fp16WithALossScale) {
  expect_same_run(vit_run, {"train.precision=fp16", "optimizer.scaler.interval=3"});
}

TEST_F(Graphs, Accumulation) { expect_same_run(gpt_run, {"train.micro_batch=1"}); }

TEST_F(Graphs, DropoutMasksOfEachStep) { expect_same_run(mlp_run, {}); }

TEST_F(Graphs, AveragedWeights) { expect_same_run(vit_run, {"train.ema=0.9"}); }

TEST_F(Graphs, SgdWithMomentum) {
  expect_same_run(vit_run, {"optimizer.name=sgd", "optimizer.momentum=0.9"});
}

TEST_F(Graphs, ASmallerLastBatchAndValidation) {
  expect_same_run(vit_run,
                  {"train.last_batch=keep", "data.samples=10", "train.steps=24", "valid.every=5"});
}

TEST_F(Graphs, Recompute) { expect_same_run(gpt_run, {"memory.recompute=blocks"}); }

TEST_F(Graphs, AResumedRunGoesOn) {
  const test::TempDir dir;
  const auto run = [&](const char* name, int64_t steps, const Sets& sets, bool resume) {
    RunOptions options = run_of(gpt_run, with(on_gpu, sets));
    options.run.dir = (dir / name).string();
    options.checkpoint.at_end = true;
    options.optimizer.schedule = {};
    options.train.steps = steps;
    TestRun one(options);
    if (resume) EXPECT_TRUE(one.trainer.resume());
    one.trainer.fit();
    return one.weights();
  };
  const auto whole = run("whole", 16, {"train.graph=off"}, false);
  run("parts", 8, {"train.graph=on"}, false);
  expect_same_bits(run("parts", 16, {"train.graph=on"}, true), whole);
}

// The pool of the graphs is the memory of the steps before them: a replay does not come on top.
TEST_F(Graphs, TakeNoMemoryOfTheirOwn) {
  accelerator()->reset_peak(0);
  const DeviceMemory before = accelerator()->memory(0);
  TestRun run(
      run_of(vit_run, with(on_gpu, {"model.width=256", "model.depth=4", "model.image=[64, 128]",
                                    "train.graph=on", "data.input_shape=[3, 64, 128]"})));
  run.trainer.fit();
  const int64_t alive = accelerator()->peak_allocated(0) - before.allocated;
  const int64_t reserved = accelerator()->peak_reserved(0) - before.reserved;
  EXPECT_LE(reserved, alive + alive / 4 + (int64_t{64} << 20));
}

TEST_F(Graphs, ACaptureThatReadsTheHostIsRefused) {
  const auto pool = accelerator()->capture_pool(0);
  const at::Tensor x = at::full({4}, 2.0, at::TensorOptions(c10::kFloat).device(gpu()));
  EXPECT_THROW(pool->capture([&] { x.sum().item<float>(); }), c10::Error);
  at::Tensor y = at::zeros_like(x);
  const auto graph = pool->capture([&] { y.copy_(x.mul(3)); });  // the next one works
  EXPECT_EQ(y.sum().item<float>(), 0);
  graph->replay();
  EXPECT_EQ(y.sum().item<float>(), 24);
}

}  // namespace
}  // namespace braid::train
