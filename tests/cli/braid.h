// SPDX-License-Identifier: BSD-3-Clause
// The real command in a folder of its own, with small configs.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/app.h"
#include "support/command.h"
#include "support/expect.h"

namespace braid::test {

using Words = std::vector<std::string>;

inline Words braid_words(Words words) {
  words.insert(words.begin(), BRAID_COMMAND);
  return words;
}
inline Outcome braid_run(Words words) { return run_command(braid_words(std::move(words))); }

// The same without a process of its own, in a folder: ten times as fast. Not for commands that
// start ranks.
inline Outcome run_here(Words words, const std::filesystem::path& folder = ".") {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome done;
  std::string complaint;
  try {
    cli::Action action;
    const auto app = cli::make_app(action);
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    app->parse(words);
    done.code = static_cast<int>(action());
  } catch (const Error& error) {
    done.code = static_cast<int>(error.code());
    complaint = explain(error.complaint());
  }
  std::fflush(stdout);
  done.out = testing::internal::GetCapturedStdout();
  done.err = testing::internal::GetCapturedStderr() + complaint;
  std::filesystem::current_path(before);
  return done;
}

// The file with the small configs of these tests; <DIR> stands for the test's folder.
inline const std::string small_configs = R"(
mlp: &mlp
  seed: 3
  run: {dir: <DIR>/mlp}
  model: {name: mlp, inputs: 2, hidden: [16, 8], outputs: 2}
  data: {kind: spiral, points: 100, workers: 1}
  train: {steps: 12, global_batch: 14, loss: cross_entropy, device: cpu, ema: 0.9, threads: 1}
  optimizer: {name: adam, lr: 1e-2}
  checkpoint: {metric: accuracy, highest: true}
long: {<<: *mlp, run.dir: <DIR>/long, train.steps: 100_000_000, checkpoint.every: 100_000_000, valid.every: 100_000_000, report.to: [console, jsonl]}
vit: &vit
  seed: 1
  run: {dir: <DIR>/vit}
  model: {name: vit, image: [8, 16], patch: 4, channels_in: 3, channels_out: 3, width: 16, depth: 1, heads: 2}
  data: {kind: frames, train: <DIR>/weather/train, valid: <DIR>/weather/valid, test: <DIR>/weather/test, means: <DIR>/weather/stats/global_means.npy, stds: <DIR>/weather/stats/global_stds.npy, pairs: reference, workers: 1}
  train: {steps: 4, global_batch: 4, loss: relative_l2, device: cpu, threads: 1}
  optimizer: {name: adam, lr: 1e-3}
swinir:
  run: {dir: <DIR>/swinir}
  model: {name: swinir, image: [16, 16], scale: 2, width: 8, depths: [1], heads: [2], mean: [0, 0, 0], std: [1, 1, 1]}
  data: {kind: synthetic, input_shape: [3, 16, 16], target_shape: [3, 32, 32], samples: 4, workers: 0}
  train: {steps: 1, global_batch: 2, loss: l1, device: cpu, threads: 1}
gpt:
  run: {dir: <DIR>/gpt}
  model: {name: gpt, vocabulary: 32, sequence: 8, layers: 1, heads: 2, width: 16}
  data: {kind: synthetic, input_shape: [8], target_shape: [8], classes: 32, samples: 8, workers: 0}
  train: {steps: 2, global_batch: 4, loss: cross_entropy, device: cpu, threads: 1}
text:
  run: {dir: <DIR>/text}
  model: {name: gpt, vocabulary: 256, sequence: 8, layers: 1, heads: 2, width: 16}
  data: {kind: text, train: <DIR>/a.txt, sequence: 8, workers: 0}
  train: {steps: 2, global_batch: 4, loss: cross_entropy, device: cpu, threads: 1}
)";

struct Cli : testing::Test {
  void SetUp() override {
    std::string text = small_configs;
    for (size_t at; (at = text.find("<DIR>")) != std::string::npos;)
      text.replace(at, 5, dir.path().string());
    std::ofstream(dir / "small.yaml") << text;
    std::ofstream(dir / "a.txt") << std::string(400, 'a') + "hello, world";
  }
  std::string at(const std::string& name) const { return (dir / name).string(); }
  std::string config(const std::string& name) const { return at("small.yaml") + ":" + name; }

  Outcome train(const std::string& name, Words more = {}) const {
    Words words = {"train", config(name)};
    words.insert(words.end(), more.begin(), more.end());
    return braid_run(words);
  }
  // Frames of [3, 8, 16]: 12 a year.
  void make_weather() const {
    const Outcome made = braid_run({"data", "make", "weather", at("weather"), "--shape", "3,8,16",
                                    "--frames", "12", "--seed", "5"});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  // Expects an exit code and parts of the message; no dump of the stack.
  static void expect_complaint(const Outcome& done, Exit code, const Words& parts) {
    EXPECT_EQ(done.code, static_cast<int>(code)) << done.err;
    for (const std::string& part : parts) EXPECT_TRUE(contains(done.err, part));
    EXPECT_TRUE(contains(done.err, "fix:"));
    EXPECT_EQ(done.err.find("Exception raised from"), std::string::npos) << done.err;
  }

  TempDir dir;
};

inline nlohmann::json json_of(const Outcome& done) {
  nlohmann::json parsed = nlohmann::json::parse(done.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(parsed.is_object()) << done.out << done.err;
  return parsed;
}

}  // namespace braid::test
