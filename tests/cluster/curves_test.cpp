// SPDX-License-Identifier: BSD-3-Clause
// `braid train --ranks N`: the loss curve depends neither on the number of ranks nor on what they
// share, nor on where the run was stopped and taken up again.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "cli/braid.h"

namespace braid::test {
namespace {

using Curve = std::map<int64_t, double>;

struct Ranks : Cli {
  void SetUp() override {
    Cli::SetUp();
    ASSERT_EQ(braid_run({"data", "make", "tokens", at("train.bin"), "--tokens", "4000",
                         "--vocabulary", "64", "--seed", "2"})
                  .code,
              0);
    std::ofstream(dir / "gpt.yaml") << R"(
gpt:
  seed: 4
  model: {name: gpt, vocabulary: 64, sequence: 16, layers: 2, heads: 2, width: 32, dropout: 0.1}
  data: {kind: tokens, train: )" + at("train.bin") +
                                           R"(, sequence: 16, workers: 1}
  train: {steps: 200, global_batch: 10, loss: cross_entropy, device: cpu, threads: 1, precision: fp64, clip: 1}
  optimizer: {name: adamw, lr: 3e-3, eps: 1e-4, weight_decay: 0.1}
  checkpoint: {every: 100}
  report: {to: [jsonl]}
)";
  }

  Outcome gpt(const std::string& run, int ranks, Words sets, bool resume = false) const {
    Words words = {"train", at("gpt.yaml") + ":gpt", "--quiet", "--ranks", std::to_string(ranks),
                   "--set", "run.dir=" + at(run)};
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    if (resume) words.push_back("--resume");
    return braid_run(words);
  }

  Curve curve(const std::string& run) const {
    std::istringstream lines(text_of(dir / run / "log.jsonl"));
    Curve losses;
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record["type"] == "step") losses[record["step"]] = record["loss"];
    }
    return losses;
  }

  void expect_same(const Curve& mine, const Curve& reference) const {
    ASSERT_EQ(mine.size(), 200u);
    for (const auto& [step, loss] : reference)
      ASSERT_NEAR(mine.at(step), loss, 1e-10 * loss) << "step " << step;
  }
};

TEST_F(Ranks, HaveOneLossCurveWhateverTheirNumberAndLayout) {
  ASSERT_EQ(gpt("one", 1, {}).code, 0);
  const Curve one = curve("one");
  EXPECT_LT(one.at(200), 0.9 * one.at(1)) << "it learns";
  const std::vector<std::pair<int, Words>> layouts = {
      {2, {}},
      {3, {"train.zero=3"}},
      {4, {"train.zero=2"}},
      {4, {"train.zero=3", "mesh.shard=2"}},
      {4, {"mesh.tensor=2", "mesh.pipeline=2", "train.micro_batch=5"}},
      {4, {"mesh.context=2", "train.zero=3"}}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    const auto& [ranks, sets] = layouts[i];
    const std::string run = "run" + std::to_string(i);
    const Outcome done = gpt(run, ranks, sets);
    ASSERT_EQ(done.code, 0) << done.err;
    SCOPED_TRACE(run);
    expect_same(curve(run), one);
  }
}

TEST_F(Ranks, GoOnFromAnotherLayout) {
  ASSERT_EQ(gpt("one", 1, {}).code, 0);
  const Curve one = curve("one");
  struct Change {
    int before, after;
    Words before_sets, after_sets;
  };
  const Change changes[] = {{3, 1, {"train.zero=3"}, {}},
                            {1, 4, {}, {"train.zero=3", "mesh.shard=2"}},
                            {2, 3, {}, {"train.zero=1"}},
                            {4, 2, {"train.zero=2"}, {"train.zero=3"}},
                            {4, 2, {"mesh.tensor=2", "train.zero=3"}, {"mesh.pipeline=2"}}};
  int number = 0;
  for (const Change& change : changes) {
    const std::string run = "change" + std::to_string(number++);
    SCOPED_TRACE(run);
    Words half = change.before_sets;
    half.push_back("train.steps=100");
    ASSERT_EQ(gpt(run, change.before, half).code, 0);
    const Outcome done = gpt(run, change.after, change.after_sets, /*resume=*/true);
    ASSERT_EQ(done.code, 0) << done.err;
    expect_same(curve(run), one);
  }
}

// The guide's own check: the same effective batch, the same training.
TEST_F(Ranks, EightOfFourSamplesEqualOneOfThirtyTwo) {
  const auto spiral = [&](const std::string& run, Words more) {
    Words words = {"train", std::string(BRAID_SOURCE_DIR) + "/configs/mlp.yaml:base", "--quiet"};
    words.insert(words.end(), {"--set", "run.dir=" + at(run), "--set", "train.epochs=1", "--set",
                               "model.dropout=0", "--set", "train.threads=1"});
    words.insert(words.end(), more.begin(), more.end());
    const Outcome done = braid_run(words);
    EXPECT_EQ(done.code, 0) << done.err;
    return curve(run);
  };
  const Curve one = spiral("one", {});
  const Curve eight = spiral("eight", {"--ranks", "8", "--set", "train.global_batch=null", "--set",
                                       "train.local_batch=4"});
  ASSERT_EQ(one.size(), 219u);
  ASSERT_EQ(eight.size(), one.size());
  for (const auto& [step, loss] : one) ASSERT_NEAR(eight.at(step), loss, 1e-5) << "step " << step;
}

TEST_F(Ranks, AreRefusedABackendThatCannotCarryThem) {
  const Outcome done = gpt("nccl", 2, {"launch.backend=nccl", "train.device=cpu"});
  EXPECT_EQ(done.code, static_cast<int>(Exit::config));
  EXPECT_TRUE(contains(done.err, "launch.backend = nccl on the CPU"));
  EXPECT_TRUE(contains(done.err, "NCCL carries tensors of GPUs alone"));
}

}  // namespace
}  // namespace braid::test
