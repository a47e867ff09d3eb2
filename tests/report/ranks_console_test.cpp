// SPDX-License-Identifier: BSD-3-Clause
// What the console says of a run on many ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "braid/report/sink.h"
#include "report/samples.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::test {
namespace {

std::string said(const RunInfo& info, const std::function<void(report::Sink&)>& body) {
  TempDir dir;
  const std::string file = (dir / "out.log").string();
  Log log({.rank = 0, .file = file, .quiet = true});
  const auto sink = report::console_sink({}, log, {});
  sink->start(info);
  body(*sink);
  return text_of(file);
}

std::string start_of(const RunInfo& info) {
  return said(info, [](report::Sink&) {});
}

TEST(RanksConsole, TheStartNamesRanksMeshAndLatency) {
  auto info = sample_info_of_ranks("runs/demo", 4);
  EXPECT_TRUE(
      contains(start_of(info), "  4 ranks (data 2, shard 2), latency of an all-reduce 0.12 ms\n"));
  info.latency = 0.0034;
  EXPECT_TRUE(contains(start_of(info), "latency of an all-reduce 3.4 ms\n"));
  info.latency = 0;
  EXPECT_TRUE(contains(start_of(info), "  4 ranks (data 2, shard 2)\n"));
}

TEST(RanksConsole, OneRankAloneReadsAsItAlwaysDid) {
  const std::string text = said(sample_info("demo", "runs/demo"), [](report::Sink& sink) {
    sink.step(sample_step(1));
    sink.epoch(sample_epoch(0));
  });
  for (const char* word : {"ranks", "comm wait", "slowest", "own work"})
    EXPECT_FALSE(contains(text, word)) << word;
}

TEST(RanksConsole, StepLinesSayTheWaitAndWhomTheOthersWaitFor) {
  const std::string text = said(sample_info_of_ranks("runs/demo", 4), [](report::Sink& sink) {
    for (int64_t step = 1; step <= 20; ++step)
      sink.step(sample_step_of_ranks(step, sample_ranks(4, step <= 10 ? 2 : -1)));
  });
  EXPECT_TRUE(contains(text, "data wait 10 %, comm wait 30 %, slowest rank 2 (+29 %), memory"));
  const std::string last = text.substr(text.find("step 20/40"));
  EXPECT_TRUE(contains(last, "comm wait 30 %, memory"))
      << "the rank that was slow before the line of step 10 is not any more: " << last;
}

TEST(RanksConsole, TheSlowestIsThatOfAllStepsSinceTheLastLine) {
  const std::string text = said(sample_info_of_ranks("runs/demo", 4), [](report::Sink& sink) {
    for (int64_t step = 1; step <= 10; ++step)
      sink.step(sample_step_of_ranks(step, sample_ranks(4, step == 10 ? 3 : 1)));
  });
  EXPECT_TRUE(contains(text.substr(text.find("step 10/40")), "slowest rank 1 (+23 %)")) << text;
}

TEST(RanksConsole, AnEpochEndsWithATableOfItsOwnSteps) {
  const std::string text = said(sample_info_of_ranks("runs/demo", 4), [](report::Sink& sink) {
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      for (int64_t step = 1; step <= 10; ++step)
        sink.step(sample_step_of_ranks(10 * epoch + step, sample_ranks(4, epoch)));
      sink.epoch(sample_epoch(epoch));
    }
  });
  const auto row = [](int rank) {
    return "      " + std::to_string(rank) +
           "      500.0 ms      400.0 ms       50.0 ms       50.0 ms  slowest, +29 %";
  };
  const size_t second = text.rfind("Avg train loss");
  EXPECT_TRUE(contains(text.substr(0, second), row(0)));
  EXPECT_FALSE(contains(text.substr(0, second), row(1)));
  EXPECT_TRUE(contains(text.substr(second), row(1)));
  EXPECT_FALSE(contains(text.substr(second), row(0)));
}

TEST(RanksConsole, TheBarOfATerminalSaysItToo) {
  TempDir dir;
  const std::string drawn = (dir / "tty").string();
  std::FILE* tty = std::fopen(drawn.c_str(), "w");
  Log log({.rank = 0, .file = (dir / "out.log").string(), .quiet = true});
  const auto sink =
      report::console_sink({}, log, {.is_tty = true, .columns = 200, .fd = ::fileno(tty)});
  sink->start(sample_info_of_ranks("runs/demo", 4));
  sink->step(sample_step_of_ranks(1, sample_ranks(4, 2)));
  EXPECT_TRUE(contains(text_of(drawn), "comm wait 30 %  slowest rank 2 (+29 %)"));
  std::fclose(tty);
}

}  // namespace
}  // namespace braid::test
