// SPDX-License-Identifier: BSD-3-Clause
// A run under a byte limit ends with a report that names the tensor, what was alive, and changes
// that work when they are made.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "braid/train/out_of_memory.h"
#include "train/run.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

const std::string gpt_wide = R"(
seed: 3
model: {name: gpt, vocabulary: 64, sequence: 32, layers: 3, heads: 4, width: 32}
data: {kind: synthetic, input_shape: [32], target_shape: [32], classes: 64, samples: 32, workers: 0}
train: {steps: 3, global_batch: 16, loss: cross_entropy, device: cpu}
optimizer: {name: adam, lr: 1e-3}
report: {to: []}
)";

struct OutOfMemory : testing::Test {
  RunOptions options(std::vector<std::string> sets) {
    sets.push_back("run.dir=" + (dir / "run").string());
    sets.push_back("data.sequence=32");
    return run_of(gpt_wide, sets);
  }
  int64_t peak(const std::vector<std::string>& sets) {
    return predict_peak(options(sets), {}).bytes;
  }
  static EndRecord train(const RunOptions& run) {
    return open_session(run, {.quiet = true}).trainer->fit();
  }
  nlohmann::json report() const {
    std::ifstream file(dir / "run" / "out_of_memory.json");
    return nlohmann::json::parse(file);
  }
  std::string limit(int64_t bytes) { return "memory.limit=" + std::to_string(bytes); }

  test::TempDir dir;
};

TEST_F(OutOfMemory, EndsWithAReportOfWhatWasAlive) {
  const int64_t needed = peak({}), room = needed * 7 / 10;
  testing::internal::CaptureStderr();
  const std::string text = error_of([&] { train(options({limit(room)})); });
  const std::string terminal = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(text, "out of memory in step 1, "));
  EXPECT_TRUE(contains(text, "(memory.limit)"));
  EXPECT_TRUE(contains(text, "fix: --set "));
  EXPECT_TRUE(contains(terminal, "did not fit"));
  EXPECT_TRUE(contains(terminal, "activation"));
  EXPECT_TRUE(contains(terminal, "transformer.h.*"));
  EXPECT_LE(std::count(terminal.begin(), terminal.end(), '\n'), 42);
  const nlohmann::json json = report();
  EXPECT_EQ(json["limit"], room);
  EXPECT_TRUE(json["counted"]);
  const auto asked = json["asked"]["bytes"].get<int64_t>();
  const auto alive = json["alive"]["bytes"].get<int64_t>();
  EXPECT_GT(asked, 0);
  EXPECT_LE(alive, room);
  EXPECT_GT(alive + asked, room);
  int64_t kinds = 0, modules = 0;
  for (const auto& [kind, bytes] : json["alive"]["by_kind"].items()) kinds += bytes.get<int64_t>();
  for (const auto& [module, bytes] : json["alive"]["by_module"].items())
    modules += bytes.get<int64_t>();
  EXPECT_EQ(kinds, alive);
  EXPECT_EQ(modules, alive);
  EXPECT_FALSE(json["asked"]["operator"].get<std::string>().empty());
  EXPECT_EQ(json["predicted_peak"], needed);
  EXPECT_LT(json["seconds"].get<double>(), 10);
  EXPECT_TRUE(fs::exists(dir / "run/out_of_memory/rank0_memory_snapshot.pickle"));
  EXPECT_TRUE(fs::exists(dir / "run/out_of_memory/rank0_memory.html"));
}

TEST_F(OutOfMemory, EveryChangeThatIsSaidToFitDoes) {
  const int64_t room = peak({}) * 7 / 10;
  error_of([&] { train(options({limit(room)})); });
  int fitting = 0;
  const nlohmann::json changes = report()["changes"];
  for (const nlohmann::json& change : changes) {
    const auto sets = change["set"].get<std::string>();
    const std::string flag = "--set ";
    const bool single = sets.starts_with(flag) && sets.find(' ', flag.size()) == std::string::npos;
    if (!single) continue;
    SCOPED_TRACE(sets);
    const bool fits = change["fits"];
    EXPECT_EQ(fits, change["peak"].get<int64_t>() <= room);
    const RunOptions run = options({limit(room), sets.substr(flag.size())});
    if (fits) {
      EXPECT_EQ(train(run).step, 3);
      ++fitting;
    } else {
      EXPECT_THROW(train(run), MemoryError);
    }
    fs::remove_all(dir / "run");
  }
  EXPECT_GE(fitting, 2);
}

// The limit is the dry peak: that fits, a byte less does not.
TEST_F(OutOfMemory, TheLimitHoldsToTheByte) {
  const int64_t needed = peak({});
  EXPECT_EQ(train(options({limit(needed), "checkpoint.at_end=false"})).step, 3);
  fs::remove_all(dir / "run");
  EXPECT_THROW(train(options({limit(needed - 1)})), MemoryError);
}

TEST_F(OutOfMemory, BuildingTheModelCounts) {
  const std::string text = error_of([&] { train(options({limit(20'000)})); });
  EXPECT_TRUE(contains(text, "out of memory in building the model"));
  EXPECT_TRUE(report()["asked"]["bytes"].get<int64_t>() > 0);
}

TEST_F(OutOfMemory, TheRecordOfTheRunSaysWhyItEnded) {
  TestRun run(options({limit(peak({}) / 2)}));
  EXPECT_THROW(run.trainer.fit(), MemoryError);
  ASSERT_EQ(run.sink.ends.size(), 1u);
  EXPECT_EQ(run.sink.ends[0].reason, "out_of_memory");
}

// What torch's own allocators throw is understood, too.
TEST_F(OutOfMemory, FailuresOfOtherAllocators) {
  const RunOptions run = options({});
  const Ranks alone;
  const auto failed = no_room(
      c10::OutOfMemoryError(c10::SourceLocation{},
                            "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total"),
      {.options = run, .ranks = alone});
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->asked.bytes, (int64_t{5} << 30) / 2);
  EXPECT_FALSE(failed->counted);
  const auto host =
      no_room(c10::Error(c10::SourceLocation{},
                         "DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                         "4096000 bytes. Error code 12 (Cannot allocate memory)"),
              {.options = run, .ranks = alone});
  ASSERT_TRUE(host);
  EXPECT_EQ(host->asked.bytes, 4'096'000);
  EXPECT_TRUE(no_room(std::bad_alloc(), {.options = run, .ranks = alone}));
  EXPECT_FALSE(no_room(std::runtime_error("something else"), {.options = run, .ranks = alone}));
}

TEST_F(OutOfMemory, WithoutALedgerADryRunSpeaks) {
  const RunOptions run = options({});
  const Ranks alone;
  const std::string text = error_of([&] {
    reporting_memory({.options = run, .ranks = alone, .during = [] { return "step 7, forward"; }},
                     []() -> int { throw std::bad_alloc(); });
  });
  EXPECT_TRUE(contains(text, "out of memory in step 7, forward"));
  EXPECT_FALSE(report()["counted"].get<bool>());
  EXPECT_EQ(report()["alive"]["bytes"], predict_peak(run, {}).bytes);
  EXPECT_TRUE(fs::exists(dir / "run/out_of_memory/rank0_memory.json"));
}

}  // namespace
}  // namespace braid::train
