// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "braid/report/sink.h"
#include "report/events/crc32c.h"
#include "report/samples.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::test {
namespace {

using nlohmann::json;

std::vector<std::string> event_files(const std::filesystem::path& dir) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return text;
}

class Tensorboard : public testing::Test {
 protected:
  const std::string python = BRAID_SOURCE_DIR "/.deps/venv/bin/python";
  TempDir dir;

  json read_back() const {
    const std::string command =
        python + " " BRAID_SOURCE_DIR "/tests/report/read_events.py " + (dir / "events").string();
    return json::parse(output_of(command));
  }
  bool has_reader() const { return std::filesystem::exists(python); }
};

#define NEEDS_READER() \
  if (!has_reader()) GTEST_SKIP() << "no " << python << ": tools/venv makes it"

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(report::crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(report::crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(report::masked_crc32c(""), 0xA282EAD8U);
}

TEST_F(Tensorboard, FramesAreLengthChecksumDataChecksum) {
  play(*report::tensorboard_sink(dir.path().string()), sample_info("demo", "runs/demo"), 1);
  const auto files = event_files(dir / "events");
  ASSERT_EQ(files.size(), 1U);
  EXPECT_TRUE(contains(files[0], "/events/events.out.tfevents."));
  const std::string bytes = text_of(files[0]);
  const auto number = [&](size_t at, int count) {
    uint64_t value = 0;
    for (int i = count; i-- > 0;)
      value = value << 8 | static_cast<uint8_t>(bytes[at + static_cast<size_t>(i)]);
    return value;
  };
  size_t at = 0, records = 0;
  for (; at < bytes.size(); ++records) {
    const uint64_t length = number(at, 8);
    EXPECT_EQ(number(at + 8, 4), report::masked_crc32c(bytes.substr(at, 8)));
    EXPECT_EQ(number(at + 12 + length, 4), report::masked_crc32c(bytes.substr(at + 12, length)));
    if (records == 0) {
      EXPECT_TRUE(contains(bytes.substr(at + 12, length), "brain.Event:2"));
    }
    at += length + 16;
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_EQ(records, 2U + 3 + 4 + 3);  // version and start, one step of ten, epoch, validation
}

TEST_F(Tensorboard, ItsOwnReaderFindsTheTagsOfTheNerscTutorial) {
  NEEDS_READER();
  const auto sink =
      report::tensorboard_sink(dir.path().string(), 10, {"rmse_u10=RMSE(u10m)"});  // its config
  play(*sink, sample_info("demo", "runs/demo"));
  sink->picture(sample_picture());
  const json read = read_back();
  std::vector<std::string> tags;
  for (const auto& [tag, points] : read["scalars"].items()) tags.push_back(tag);
  const std::vector<std::string> wanted = {
      "Avg iters per sec", "Avg samples per sec", "Learning Rate", "Loss/train", "Loss/valid",
      "RMSE(u10m)/valid",  "Step/data_wait",      "Step/loss",     "Step/lr",    "accuracy/valid"};
  EXPECT_EQ(tags, wanted);
  EXPECT_EQ(read["scalars"]["Loss/train"].size(), 4U);
  EXPECT_EQ(read["scalars"]["Loss/valid"][1], (json{20, 0.2F}));
  EXPECT_EQ(read["scalars"]["RMSE(u10m)/valid"][3], (json{40, 0.0625F}));
  EXPECT_FLOAT_EQ(read["scalars"]["Avg iters per sec"][0][1].get<float>(), 10 / 61.23F);
  EXPECT_EQ(read["scalars"]["Step/loss"].size(), 4U) << "every tenth of forty";
  EXPECT_EQ(read["images"]["Visualization, t2m"], (json{{10, 1200, 600, "89504e470d0a1a0a"}}));
}

TEST_F(Tensorboard, MetricsKeepTheirNamesUnlessOthersAreGiven) {
  NEEDS_READER();
  play(*report::tensorboard_sink(dir.path().string()), sample_info("own", "runs/own"));
  EXPECT_TRUE(read_back()["scalars"].contains("rmse_u10/valid"));
}

TEST(TensorboardTags, NameAMetricAndATag) {
  const std::string refusal = test::error_of([] { report::tensorboard_sink("x", 10, {"rmse"}); });
  EXPECT_TRUE(contains(refusal, "report.tags holds \"rmse\""));
  EXPECT_TRUE(contains(refusal, "metric=tag"));
}

TEST_F(Tensorboard, TheWaitForOtherRanksIsACurveIfThereAreOthers) {
  NEEDS_READER();
  const auto sink = report::tensorboard_sink(dir.path().string());
  sink->start(sample_info_of_ranks("runs/demo", 4));
  for (int64_t step = 1; step <= 20; ++step)
    sink->step(sample_step_of_ranks(step, sample_ranks(4, 2)));
  EXPECT_EQ(read_back()["scalars"]["Step/comm_wait"], (json{{10, 0.15F}, {20, 0.15F}}));
}

TEST_F(Tensorboard, AResumedRunReplacesTheStepsThatItDoesAgain) {
  NEEDS_READER();
  auto info = sample_info("demo", "runs/demo");
  play(*report::tensorboard_sink(dir.path().string()), info, 4);
  info.first_step = 20;
  const auto sink = report::tensorboard_sink(dir.path().string());
  sink->start(info);
  auto epoch = sample_epoch(2);
  epoch.train_loss = 0.125;
  sink->epoch(epoch);
  EXPECT_EQ(event_files(dir / "events").size(), 2U);
  const json losses = read_back()["scalars"]["Loss/train"];
  ASSERT_EQ(losses.size(), 3U) << losses;
  EXPECT_EQ(losses[1][0], 20);
  EXPECT_EQ(losses[2], (json{30, 0.125F}));
}

std::string path_of_loaded(const std::string& library) {
  for (const std::string& line : lines_of("/proc/self/maps"))
    if (line.find(library) != std::string::npos) return line.substr(line.find('/'));
  return "";
}

// Two versions of protobuf live in this process; a symbol in common would let one call the other.
TEST(Protobuf, TorchExportsNoneOfTheSymbolsOfOurs) {
  const std::string ours = path_of_loaded("libprotobuf-lite");
  void* torch = ::dlopen(path_of_loaded("libtorch_cpu").c_str(), RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(torch, nullptr);
  ASSERT_NE(ours, "");
  std::istringstream symbols(output_of("nm -D --defined-only --format=just-symbols " + ours));
  int64_t count = 0;
  for (std::string symbol; std::getline(symbols, symbol);) {
    if (symbol.find("google") == std::string::npos) continue;
    ++count;
    Dl_info where{};
    void* found = ::dlsym(torch, symbol.c_str());
    if (found == nullptr || ::dladdr(found, &where) == 0) continue;
    EXPECT_FALSE(contains(where.dli_fname, "libtorch_cpu")) << symbol;
  }
  EXPECT_GT(count, 500);
  ::dlclose(torch);
}

}  // namespace
}  // namespace braid::test
