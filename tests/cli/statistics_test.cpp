// SPDX-License-Identifier: BSD-3-Clause
// A model is used with the statistics that it was trained with, whatever became of their files.
#include <ATen/ops/tensor.h>

#include <iterator>
#include <sstream>

#include "braid/checkpoint/store.h"
#include "braid/data/npy.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

struct CliStatistics : Cli {
  void SetUp() override {
    Cli::SetUp();
    ASSERT_EQ(in(dir.path(), "data make weather weather --shape 3,8,16 --frames 12 --seed 5").code,
              0);
  }
  // A config with relative paths, trained in the test's folder.
  Outcome train_here(const std::string& more = "") const {
    std::string text = small_configs.substr(small_configs.find("vit: &vit"));
    text = text.substr(0, text.find("swinir:"));
    for (size_t at; (at = text.find("<DIR>/")) != std::string::npos;) text.erase(at, 6);
    text.insert(text.find("train: {") + 8, "area: reference, ");  // made-up data have no latitudes
    std::ofstream(dir / "own.yaml") << text;
    return run_command({"/bin/sh", "-c",
                        "cd '" + dir.path().string() + "' && exec '" + BRAID_COMMAND +
                            "' train own.yaml:vit --quiet " + more});
  }
  static Outcome in(const fs::path& folder, const std::string& words) {
    std::istringstream stream(words);
    return run_here({std::istream_iterator<std::string>(stream), {}}, folder);
  }
  void change_means() const {
    const fs::path file = dir / "weather/stats/global_means.npy";
    at::Tensor means = data::read_npy(file).clone();
    means.view({-1})[1].add_(2);
    data::write_npy(file, means);
  }
  nlohmann::json eval(const std::string& words = "") const {
    return json_of(in(dir.path(), "eval vit --json " + words));
  }
};

TEST_F(CliStatistics, EvalAndPredictUseThoseOfTheCheckpoint) {
  ASSERT_EQ(train_here().code, 0);
  const nlohmann::json before = eval();
  EXPECT_EQ(before["statistics"], "checkpoint");
  const std::string predict = "predict vit --input weather/test/1992.h5 --frame 7 --out ";
  ASSERT_EQ(in(dir.path(), predict + "a.npy").code, 0);
  change_means();
  const Outcome after = in(dir.path(), "eval vit --json");
  EXPECT_EQ(json_of(after)["loss"], before["loss"]);
  EXPECT_TRUE(contains(after.err,
                       "global_means.npy): 1 of 3 channels differs from the checkpoint, "
                       "most in channel 1: "));
  EXPECT_TRUE(contains(after.err, "the checkpoint's are used"));
  ASSERT_EQ(in(dir.path(), predict + "b.npy").code, 0);
  EXPECT_EQ(text_of(dir / "a.npy"), text_of(dir / "b.npy"));
  // Other statistics only by name.
  const Outcome other =
      in(dir.path(), "eval vit --json --set data.means=" + at("weather/stats/global_means.npy"));
  EXPECT_NE(json_of(other)["loss"], before["loss"]);
  EXPECT_EQ(json_of(other)["statistics"], "files");
  EXPECT_TRUE(contains(other.err, "(--set) replaces the statistics of the checkpoint: 1 of 3"));
}

TEST_F(CliStatistics, AnotherWorkingFolderFindsTheData) {
  ASSERT_EQ(train_here().code, 0);
  const nlohmann::json here = eval();
  fs::create_directory(dir / "elsewhere");
  const Outcome there = in(dir / "elsewhere", "eval ../vit --json");
  EXPECT_EQ(json_of(there)["loss"], here["loss"]);
  EXPECT_EQ(there.err, "");
  EXPECT_EQ(in(dir / "elsewhere", "predict ../vit --input ../weather/test/1992.h5").code, 0);
  // Moved away, it is named by its whole path; beside the working folder it is found there.
  fs::rename(dir / "weather", dir / "elsewhere/weather");
  const Outcome moved = in(dir / "elsewhere", "eval ../vit --json");
  EXPECT_EQ(json_of(moved)["loss"], here["loss"]);
  EXPECT_TRUE(contains(moved.err, "data.valid: " + at("weather/valid") + " does not exist; " +
                                      at("elsewhere/weather/valid") + " is used"));
  fs::remove_all(dir / "elsewhere/weather");
  expect_complaint(in(dir / "elsewhere", "eval ../vit"), Exit::data, {at("weather/valid")});
}

TEST_F(CliStatistics, ConvertKeepsThem) {
  ASSERT_EQ(train_here().code, 0);
  const nlohmann::json before = eval();
  ASSERT_EQ(in(dir.path(), "convert vit four --ranks 4").code, 0);
  change_means();
  fs::create_directory(dir / "elsewhere");
  const Outcome four = in(dir / "elsewhere", "eval ../four --json");
  EXPECT_EQ(json_of(four)["loss"], before["loss"]);
  EXPECT_TRUE(contains(in(dir.path(), "convert vit hf --format hf").err,
                       "config.json is not written, so transformers cannot load the folder"));
  EXPECT_TRUE(contains(in(dir.path(), "convert vit w.safetensors").err,
                       "not written: the statistics of the training data (data.means, data.stds)"));
}

TEST_F(CliStatistics, ResumeRefusesOthers) {
  ASSERT_EQ(train_here().code, 0);
  change_means();
  const std::string on = "--resume --set train.steps=6 ";
  expect_complaint(train_here(on), Exit::data,
                   {"global_means.npy): 1 of 3 channels differs from the checkpoint",
                    "--set data.changed_statistics=checkpoint"});
  const nlohmann::json before = eval();
  ASSERT_EQ(train_here(on + "--set data.changed_statistics=checkpoint").code, 0);
  // The new checkpoint still holds the first ones: the file differs from it.
  EXPECT_TRUE(contains(in(dir.path(), "eval vit").err, "1 of 3 channels differs"));
  const Outcome taken = train_here(
      "--resume --set train.steps=8 "
      "--set data.changed_statistics=files");
  ASSERT_EQ(taken.code, 0) << taken.err;
  EXPECT_TRUE(contains(text_of(dir / "vit/out.log"), "; the files are used"));
  EXPECT_EQ(in(dir.path(), "eval vit").err, "");
}

// As an older braid saved it: read from the files, with a line that says so.
TEST_F(CliStatistics, CheckpointsWithoutThemReadTheFiles) {
  ASSERT_EQ(train_here().code, 0);
  const nlohmann::json before = eval();
  const fs::path made = dir / "vit/checkpoints/step-00000004";
  checkpoint::Store store(dir / "old");
  store.save(checkpoint::load(made));
  store.wait();
  const Outcome old = in(dir.path(), "eval old/step-00000004 --json");
  EXPECT_EQ(json_of(old)["loss"], before["loss"]);
  EXPECT_EQ(json_of(old)["statistics"], "files");
  EXPECT_TRUE(contains(old.err,
                       "holds no statistics (an older braid saved it, or it was made of weights "
                       "alone): data.means = "
                       "weather/stats/global_means.npy and data.stds = "
                       "weather/stats/global_stds.npy are read as they are now"));
  fs::remove(made / "data.json");
  expect_complaint(in(dir.path(), "eval " + made.string()), Exit::storage, {"data.json"});
}

}  // namespace
}  // namespace braid::test
