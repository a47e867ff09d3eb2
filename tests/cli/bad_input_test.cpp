// SPDX-License-Identifier: BSD-3-Clause
// Bad input: each case has its message and its exit code (docs/exit_codes.md).
#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include <sys/mount.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "braid/data/arrays.h"
#include "braid/data/npy.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

struct BadInput : Cli {
  void SetUp() override {
    Cli::SetUp();
    make_weather();
  }
  std::string year() const { return at("weather/train/1990.h5"); }
  // Spoils one value of the training data: frame 5, channel 1, row 2, column 3.
  void spoil(double value) const {
    const at::Tensor fields = data::read_array(year());
    fields[5][1][2][3].fill_(value);
    data::write_array(year(), fields);
  }
};

TEST_F(BadInput, MissingFile) {
  expect_complaint(braid_run({"train", at("none.yaml")}), Exit::config, {"none.yaml"});
  expect_complaint(train("vit", {"--set", "data.train=" + at("nowhere")}), Exit::data, {"nowhere"});
  expect_complaint(train("vit", {"--set", "data.means=" + at("no.npy")}), Exit::data, {"no.npy"});
  expect_complaint(train("text", {"--set", "data.train=" + at("no.txt")}), Exit::data, {"no.txt"});
  expect_complaint(braid_run({"eval", at("no-run")}), Exit::data,
                   {"there is no folder", "no-run", "braid train"});
  EXPECT_FALSE(fs::exists(dir / "vit"));  // nothing is left behind
}

TEST_F(BadInput, UnknownName) { expect_complaint(train("vitt"), Exit::config, {"vitt", "vit"}); }

TEST_F(BadInput, TruncatedHdf5) {
  fs::resize_file(year(), fs::file_size(year()) / 2);
  expect_complaint(train("vit"), Exit::data, {year(), "truncated"});
}

TEST_F(BadInput, NotHdf5) {
  std::ofstream(year()) << "this is text";
  expect_complaint(train("vit"), Exit::data, {year()});
}

TEST_F(BadInput, WrongDatasetName) {
  expect_complaint(train("vit", {"--set", "data.dataset=feilds"}), Exit::data,
                   {"feilds", "fields"});
}

TEST_F(BadInput, NanInASampleIsNamed) {
  spoil(std::nan(""));
  expect_complaint(
      train("vit"), Exit::data,
      {"1 missing value of channel 1", "1990.h5, frame 5", "set data.missing to fill"});
  const Outcome check = braid_run({"data", "check", at("weather/train")});
  EXPECT_EQ(check.code, static_cast<int>(Exit::data));
  EXPECT_TRUE(contains(check.out, "frame 5"));
  EXPECT_EQ(train("vit", {"--set", "data.missing=fill"}).code, 0);
}

TEST_F(BadInput, InfinityInASampleStopsTheRun) {
  spoil(INFINITY);
  expect_complaint(train("vit"), Exit::not_finite, {"the loss is nan at step", "look_for_nan"});
  EXPECT_TRUE(contains(text_of(dir / "vit/log.jsonl"), "not_finite"));
  expect_complaint(train("vit", {"--set", "train.look_for_nan=true"}), Exit::not_finite,
                   {"batch", "data.check_finite=true"});
  expect_complaint(train("vit", {"--set", "data.check_finite=true"}), Exit::data,
                   {"1990.h5", "infinity"});
}

TEST_F(BadInput, StatisticsOfWrongLength) {
  data::write_npy(dir / "two.npy", at::tensor({1.0F, 2.0F}));
  expect_complaint(train("vit", {"--set", "data.stds=" + at("two.npy")}), Exit::data,
                   {"two.npy", "2", "3"});
}

TEST_F(BadInput, UnknownKeyAndWrongType) {
  expect_complaint(train("mlp", {"--set", "train.stepz=3"}), Exit::config, {"stepz", "steps"});
  expect_complaint(train("mlp", {"--set", "train.steps=many"}), Exit::config,
                   {"train.steps", "many"});
  std::ofstream(dir / "bad.yaml") << "seed: 1\nmodel: {name: mlp}\ntrain:\n  stps: 4\n";
  expect_complaint(braid_run({"train", at("bad.yaml")}), Exit::config, {"bad.yaml:4", "stps"});
  std::ofstream(dir / "worse.yaml") << "seed: [1\n";
  expect_complaint(braid_run({"inspect", at("worse.yaml")}), Exit::config, {"worse.yaml:"});
}

TEST_F(BadInput, WrongShapes) {
  expect_complaint(train("vit", {"--set", "model.channels_in=2"}), Exit::config,
                   {"model.channels_in = 2, but the data have 3"});
  expect_complaint(train("vit", {"--set", "model.image=[8,8]"}), Exit::config,
                   {"the data are 8 x 16"});
  expect_complaint(train("vit", {"--set", "model.patch=3"}), Exit::config, {"patch"});
  expect_complaint(train("gpt", {"--set", "data.classes=40"}), Exit::data, {"vocabulary"});
}

TEST_F(BadInput, MeshOfMoreRanks) {
  expect_complaint(train("mlp", {"--set", "mesh.data=2"}), Exit::config, {"mesh.data = 2"});
}

void shorten(const fs::path& file) { fs::resize_file(file, fs::file_size(file) - 1); }

void flip(const fs::path& file) {
  std::string bytes = text_of(file);
  bytes[bytes.size() - 5] ^= 4;
  std::ofstream(file, std::ios::binary) << bytes;
}

TEST_F(BadInput, BrokenCheckpointFallsBackAndSaysSo) {
  ASSERT_EQ(train("mlp", {"--quiet", "--set", "checkpoint.keep=3"}).code, 0);
  shorten(dir / "mlp/checkpoints/step-00000012/model.safetensors");
  flip(dir / "mlp/checkpoints/step-00000010/state-00000-of-00001.safetensors");
  const Outcome eval = braid_run({"eval", at("mlp")});
  EXPECT_EQ(eval.code, 0);
  EXPECT_TRUE(contains(eval.err, "step-00000012: model.safetensors is truncated"));
  EXPECT_TRUE(contains(eval.out, "step-00000005"));
  const Outcome again = train("mlp", {"--resume"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(contains(again.err, "checkpoint skipped: step-00000012"));
  EXPECT_TRUE(contains(again.err, "step-00000010: state-00000-of-00001.safetensors differs"));
  EXPECT_TRUE(contains(again.err, "step-00000005 at step 5"));
}

TEST_F(BadInput, AllCheckpointsBroken) {
  ASSERT_EQ(train("mlp", {"--quiet", "--set", "checkpoint.every=12"}).code, 0);
  shorten(dir / "mlp/checkpoints/step-00000012/model.safetensors");
  expect_complaint(train("mlp", {"--resume"}), Exit::storage,
                   {"none of the 1 checkpoints", "is truncated"});
  expect_complaint(braid_run({"eval", at("mlp")}), Exit::storage, {"none of the 1 checkpoints"});
}

TEST_F(BadInput, ARefusedResumeLeavesTheFolderAsItWas) {
  ASSERT_EQ(train("mlp", {"--quiet"}).code, 0);
  const std::string config = text_of(dir / "mlp/config.yaml"), log = text_of(dir / "mlp/log.jsonl");
  expect_complaint(train("mlp", {"--resume", "--set", "model.hidden=[4, 8]"}), Exit::storage,
                   {"has shape 16x2, the model's 4x2"});
  EXPECT_EQ(text_of(dir / "mlp/config.yaml"), config);
  EXPECT_EQ(text_of(dir / "mlp/log.jsonl"), log);
  ASSERT_EQ(train("mlp", {"--quiet", "--resume", "--set", "train.steps=14"}).code, 0);
  EXPECT_TRUE(contains(text_of(dir / "mlp/config.yaml"), "steps: 14"));
}

TEST_F(BadInput, NoSpaceLeft) {
  fs::create_directory(dir / "full");
  if (mount("tmpfs", at("full").c_str(), "tmpfs", 0, "size=40k") != 0)
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  const Outcome done = train("vit", {"--quiet", "--set", "run.dir=" + at("full/run")});
  umount(at("full").c_str());
  expect_complaint(done, Exit::storage, {"No space left", at("full/run")});
}

TEST_F(BadInput, NoSpaceLeftForWhatIsPrinted) {
  for (const std::string& words :
       Words{"help config", "inspect " + config("mlp"), "inspect --json " + config("mlp")})
    expect_complaint(run_command({"/bin/sh", "-c", BRAID_COMMAND " " + words + " > /dev/full"}),
                     Exit::storage, {"cannot write to stdout: No space left on device"});
}

// As a plain user: root may write anywhere.
TEST_F(BadInput, NoPermission) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become another user";
  fs::permissions(dir.path(), fs::perms::all & ~fs::perms::others_write);
  fs::create_directory(dir / "mine");
  constexpr unsigned nobody = 65534;
  Command run(braid_words({"train", config("mlp"), "--set", "run.dir=" + at("mine/run")}), nobody);
  const Outcome write = run.wait();
  if (write.code == 127) GTEST_SKIP() << "the command lies where a plain user cannot run it";
  expect_complaint(write, Exit::storage, {"Permission denied", at("mine/run")});
  fs::permissions(dir / "small.yaml", fs::perms::owner_read);
  const Outcome read = Command(braid_words({"inspect", config("mlp")}), nobody).wait();
  expect_complaint(read, Exit::config, {"small.yaml"});
}

}  // namespace
}  // namespace braid::test
