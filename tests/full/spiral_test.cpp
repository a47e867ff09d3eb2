// SPDX-License-Identifier: BSD-3-Clause
// The spirals of configs/mlp.yaml: what is learnt, and what the learning-rate rule is good for.
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/train/session.h"
#include "support/files.h"

namespace braid::train {
namespace {

class Accuracies final : public report::Sink {
 public:
  std::vector<double> values;
  void valid(const ValidRecord& record) override {
    if (record.split == "valid") values.push_back(record.metrics.at("accuracy"));
  }
};

std::vector<double> accuracies(const std::string& name, std::vector<std::string> sets = {}) {
  const test::TempDir dir;
  sets.insert(sets.end(), {"run.dir=" + (dir / "run").string(), "train.device=cpu",
                           "train.threads=1", "checkpoint.every=1000000"});
  const RunOptions options =
      load_run(std::string(BRAID_SOURCE_DIR) + "/configs/mlp.yaml:" + name, sets);
  const std::unique_ptr<nn::Model> model = build_model(options);
  Accuracies sink;
  Log log({.quiet = true});
  Trainer(*model, open_splits(options), options, sink, log).fit();
  return sink.values;
}

TEST(Spiral, LearntIn50Epochs) {
  const std::vector<double> values = accuracies("base");
  ASSERT_EQ(values.size(), 50u);
  EXPECT_GE(values.back(), 0.93);
}

// Eight times the batch: with the same learning rate too few steps, with the linear rule enough.
TEST(Spiral, LinearRuleBringsTheLargeBatchBack) {
  const std::vector<double> plain = accuracies("batch256");
  EXPECT_LT(*std::max_element(plain.begin(), plain.end()), 0.93);
  EXPECT_GE(accuracies("batch256_scaled").back(), 0.93);
}

// How far the slow run comes depends on its first weights (82 to 94 % were seen); the rule brings
// every single one there.
TEST(Spiral, LinearRuleHelpsWhateverTheSeed) {
  double sum = 0;
  for (const std::string seed : {"1", "2", "3"}) {
    const double plain = accuracies("batch256", {"seed=" + seed}).back();
    const double scaled = accuracies("batch256_scaled", {"seed=" + seed}).back();
    sum += plain;
    EXPECT_GE(scaled, 0.93) << "seed " << seed;
    EXPECT_LT(plain, scaled) << "seed " << seed;
  }
  EXPECT_LT(sum / 3, 0.93);
}

// Noise of 0.2 hides the spirals: the best classifier reaches 57.5 %, and 1500 points tell that to
// about 1.3 %.
TEST(Spiral, NothingToLearnInTheNoise) {
  const std::vector<double> values = accuracies("base", {"data.noise=0.2", "train.epochs=15"});
  EXPECT_LE(*std::max_element(values.begin(), values.end()), 0.62);
}

}  // namespace
}  // namespace braid::train
