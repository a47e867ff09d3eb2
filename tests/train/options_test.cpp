// SPDX-License-Identifier: BSD-3-Clause
// The config of a run: every recipe loads, and what cannot work is refused in words.
#include "braid/train/options.h"

#include <gtest/gtest.h>

#include "braid/core/config.h"
#include "train/run.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

TEST(RunOptions, SizesThatNothingCanHoldOrCountAreRefused) {
  for (const std::string set :
       {"model.name=gpt model.width=1000000000000000000", "model.name=gpt model.sequence=1e18",
        "data.samples=9223372036854775807", "data.workers=20000", "train.threads=1000000",
        "train.global_batch=1e18", "mesh.tensor=1e12", "data.queue=1e12"}) {
    Config config;
    const size_t blank = set.find(' ');
    const std::string last = blank == set.npos ? set : set.substr(blank + 1);
    if (blank != set.npos) config.set("model.name", "gpt");
    const size_t equals = last.find('=');
    config.set(last.substr(0, equals), last.substr(equals + 1));
    const std::string said = error_of([&] { read_options<RunOptions>(config); });
    EXPECT_TRUE(contains(said, last.substr(0, equals) + " = "));
    EXPECT_TRUE(contains(said, "must be at most"));
    EXPECT_TRUE(contains(said, "cannot be held in memory or counted"));
  }
  RunOptions many;
  many.train.steps = 1;
  many.model.mlp.hidden.assign(10'001, 4);
  EXPECT_TRUE(contains(error_of([&] { check(many); }), "model.hidden has 10001 layers"));
}

TEST(RunOptions, EveryRecipeLoadsAndReadsBackEqual) {
  const test::TempDir dir;
  int recipes = 0;
  for (const auto& file : fs::directory_iterator(fs::path(BRAID_SOURCE_DIR) / "configs")) {
    for (const std::string& name : Config::names(file.path().string())) {
      const std::string spec = file.path().string() + ":" + name;
      const std::string yaml = resolved_yaml(load_run(spec));
      std::ofstream(dir / "config.yaml") << yaml;
      EXPECT_EQ(resolved_yaml(load_run((dir / "config.yaml").string())), yaml) << spec;
      ++recipes;
    }
  }
  EXPECT_GE(recipes, 32);
}

std::string refusal(const std::vector<std::string>& sets, const std::string& yaml = mlp_run) {
  return error_of([&] { run_of(yaml, sets); });
}

TEST(RunOptions, RefusesWhatCannotWork) {
  EXPECT_TRUE(contains(refusal({"train.local_batch=4"}),
                       "train.global_batch = 14 and train.local_batch = 4 are both given"));
  EXPECT_TRUE(contains(refusal({"train.steps=0"}), "the run has no end"));
  EXPECT_TRUE(contains(refusal({"train.precision=fp8"}), "train.precision"));
  EXPECT_TRUE(contains(refusal({"train.ema=2"}), "train.ema"));
}

TEST(RunOptions, UnknownKeyNamesTheNearestAndItsPlace) {
  const std::string text = refusal({}, mlp_run + "valid: {patiense: 3}\n");
  EXPECT_TRUE(contains(text, "patiense"));
  EXPECT_TRUE(contains(text, "patience"));
  EXPECT_TRUE(contains(text, "run.yaml:8"));
  EXPECT_TRUE(contains(refusal({"train.stepz=3"}), "steps"));
}

TEST(RunOptions, WrongTypeNamesWhatIsWanted) {
  const std::string text = refusal({"train.steps=many"});
  EXPECT_TRUE(contains(text, "train.steps"));
  EXPECT_TRUE(contains(text, "many"));
  EXPECT_TRUE(contains(refusal({"train.steps=1.5"}), "1.5"));
  EXPECT_TRUE(contains(refusal({"train.whole_epochs=perhaps"}), "perhaps"));
}

TEST(RunOptions, AMeshOfOneProcess) {
  const test::TempDir dir;
  const RunOptions options =
      run_of(mlp_run, {"mesh.tensor=2", "run.dir=" + (dir / "run").string()});
  const std::string text = error_of([&] { open_session(options, {.quiet = true}); });
  EXPECT_TRUE(contains(text, "mesh.tensor = 2 asks for 2 ranks, but this process is the only one"));
}

TEST(RunOptions, LocalBatchTimesRanks) {
  const RunOptions options = run_of(mlp_run, {"train.global_batch=null", "train.local_batch=6"});
  EXPECT_EQ(global_batch_of(options.train, 1), 6);
  EXPECT_EQ(global_batch_of(options.train, 4), 24);
  EXPECT_EQ(global_batch_of(run_of(mlp_run).train, 4), 14);
}

TEST(RunOptions, DtypesOverThePolicy) {
  EXPECT_EQ(policy_of(run_of(mlp_run, {"train.precision=bf16"}).train), precision("bf16"));
  const Precision mixed = policy_of(
      run_of(mlp_run, {"train.param=bf16", "train.compute=bf16", "train.master=fp32"}).train);
  EXPECT_EQ(mixed.param, c10::kBFloat16);
  EXPECT_EQ(mixed.compute, c10::kBFloat16);
  EXPECT_EQ(mixed.master, c10::kFloat);
  const Precision wide =
      policy_of(run_of(mlp_run, {"train.param=fp64", "train.compute=fp64"}).train);
  EXPECT_EQ(wide.master, c10::kDouble);  // a master is never narrower than its parameter
}

TEST(RunOptions, FolderFollowsTheName) {
  EXPECT_EQ(run_dir(run_of(mlp_run, {"run.name=spiral"})), "runs/spiral");
  EXPECT_EQ(run_dir(run_of(mlp_run, {"run.dir=/tmp/x"})), "/tmp/x");
}

TEST(RunOptions, HelpListsEveryModel) {
  std::vector<std::string> paths;
  for (const OptionRow& row : all_options()) {
    paths.push_back(row.path);
    EXPECT_FALSE(row.help.empty()) << row.path;
  }
  for (const char* path : {"seed", "train.steps", "model.name", "model.patch (vit)",
                           "model.window (swinir)", "model.kv_heads (llama)", "optimizer.lr",
                           "optimizer.scaler.initial", "mesh.tensor", "checkpoint.keep"})
    EXPECT_EQ(std::count(paths.begin(), paths.end(), path), 1) << path;
}

TEST(Device, CpuWhenAskedAndCudaOnlyWhereThereIsOne) {
  TrainOptions options;
  options.device = "cpu";
  EXPECT_TRUE(device_of(options).is_cpu());
  options.device = "auto";
  const bool none = device_of(options).is_cpu();
  options.device = "cuda";
  if (none)
    EXPECT_TRUE(contains(error_of([&] { device_of(options); }),
                         "train.device = cuda, but there is no usable GPU"));
}

TEST(Device, PeaksOfKnownGpus) {
  EXPECT_EQ(known_peak_flops("NVIDIA H200", precision("bf16")), 989.5e12);
  EXPECT_EQ(known_peak_flops("NVIDIA A100-SXM4-80GB", precision("tf32")), 156e12);
  EXPECT_EQ(known_peak_flops("NVIDIA A100-SXM4-80GB", precision("fp32")), 19.5e12);
  EXPECT_EQ(known_peak_flops("cpu", precision("fp32")), 0);
}

}  // namespace
}  // namespace braid::train
