// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "braid/report/sink.h"
#include "report/pace.h"
#include "report/progress_bar.h"
#include "report/samples.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::test {
namespace {

// What the log says, without the time stamps.
std::vector<std::string> messages_of(const std::string& file) {
  std::vector<std::string> messages;
  for (const std::string& line : lines_of(file)) {
    const std::string mark = " - root - INFO - ";
    messages.push_back(line.substr(std::min(line.size(), line.find(mark) + mark.size())));
  }
  return messages;
}

std::vector<std::string> say(const RunInfo& info, auto body, int64_t every = 10) {
  TempDir dir;
  const std::string file = (dir / "out.log").string();
  Log log({.rank = 0, .file = file, .quiet = true});
  report::ReportOptions options;
  options.every = every;
  const auto sink = report::console_sink(options, log, {});
  sink->start(info);
  body(*sink);
  return messages_of(file);
}

bool has(const std::vector<std::string>& lines, const std::string& line) {
  return std::ranges::count(lines, line) == 1;
}

TEST(Console, EpochLinesAreThoseOfTheNerscTutorial) {
  const auto lines = say(sample_info("demo", "runs/demo"), [](report::Sink& sink) {
    sink.epoch(sample_epoch(0));
    auto valid = sample_valid(0);
    valid.loss = 0.42345901;
    sink.valid(valid);
  });
  EXPECT_TRUE(has(lines, "Starting Training Loop..."));
  EXPECT_TRUE(has(lines, "Time taken for epoch 1 is 61.230000 sec, avg 8.362000 samples/sec"));
  EXPECT_TRUE(has(lines, "  Avg train loss=0.578991"));
  EXPECT_TRUE(has(lines, "  Avg val loss=0.42345901"));
  EXPECT_TRUE(has(lines, "  Total validation time: 4.94 sec"));
  EXPECT_TRUE(has(lines, "  Validation metrics: accuracy=0.5, rmse_u10=0.25"));
}

TEST(Console, SaysTheFirstStepAndThenEveryFewWithMeansInBetween) {
  const auto lines = say(sample_info("demo", "runs/demo"), [](report::Sink& sink) {
    for (int64_t step = 1; step <= 25; ++step) {
      auto record = sample_step(step);
      if (step > 10) record.seconds = 0.25;  // 64 samples/s between the lines of steps 10 and 20
      sink.step(record);
    }
  });
  std::vector<std::string> steps;
  std::ranges::copy_if(lines, std::back_inserter(steps),
                       [](const std::string& line) { return line.starts_with("step "); });
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0],
            "step 1/40, epoch 1, loss 1.000000, lr 0.0005, 32.00 samples/s, 2 TFLOP/s, "
            "ETA 0:00:19, data wait 10 %, memory 3.00 GiB");
  EXPECT_TRUE(contains(steps[2], "step 20/40, epoch 2, loss 0.050000, lr 0.0005, 64.00 samples/s"));
}

TEST(Console, ModelFlopsUtilisationOnlyWithAKnownPeak) {
  auto info = sample_info("demo", "runs/demo");
  const auto step = [](report::Sink& sink) { sink.step(sample_step(1)); };
  EXPECT_FALSE(contains(say(info, step).back(), "MFU"));
  info.peak_flops = 8e12;
  EXPECT_TRUE(contains(say(info, step).back(), "2 TFLOP/s, MFU 25.0 %"));
}

TEST(Console, TokensSkippedUpdatesAndGradientNormAreSaid) {
  const auto lines = say(sample_info("demo", "runs/demo"), [](report::Sink& sink) {
    auto record = sample_step(1);
    record.tokens = 16 * 1024;
    record.skipped = true;
    record.loss_scale = 32768;
    record.grad_norm = 1.5;
    sink.step(record);
  });
  EXPECT_TRUE(has(lines, "  step 1: update skipped, the loss scale is now 32768"));
  EXPECT_TRUE(contains(lines.back(), "32768 tokens/s"));
  EXPECT_TRUE(contains(lines.back(), "grad norm 1.5"));
}

TEST(Console, TheLastLineSaysWhyItEndedAndWhereTheResultsAre) {
  TempDir dir;
  const std::string file = (dir / "out.log").string();
  {
    Log log({.rank = 0, .file = file, .quiet = true});
    const auto sink = report::console_sink({}, log, {});
    play(*sink, sample_info("demo", "runs/demo"));
  }
  const auto lines = messages_of(file);
  EXPECT_TRUE(has(lines, "checkpoint (step 40): saved checkpoints/40"));
  EXPECT_TRUE(has(lines, "Final metrics: rmse_u10=0.0625"));
  EXPECT_EQ(lines.back(),
            "Finished at step 40 after 1:02:03: all epochs done. Results are in runs/demo");
}

TEST(Console, AnEvaluationBeforeTrainingIsNoEpochLine) {
  const auto lines = say(sample_info("demo", "runs/demo"), [](report::Sink& sink) {
    auto valid = sample_valid(0);
    valid.step = 0;
    sink.valid(valid);
  });
  EXPECT_EQ(lines.back(), "Before training: valid loss 0.400000, accuracy=0.5, rmse_u10=0.25");
}

TEST(Console, OnATerminalABarIsDrawnSeldomAndClearedBeforeLines) {
  TempDir dir;
  const std::string drawn = (dir / "tty").string();
  const int fd = ::open(drawn.c_str(), O_CREAT | O_RDWR, 0600);
  Log log({.rank = 0, .file = (dir / "out.log").string(), .quiet = true});
  const auto sink = report::console_sink({}, log, {.is_tty = true, .columns = 120, .fd = fd});
  sink->start(sample_info("demo", "runs/demo"));
  for (int64_t step = 1; step <= 30; ++step) sink->step(sample_step(step));
  EXPECT_EQ(std::ranges::count(text_of(drawn), '%') > 0, true);
  const auto drawings = [&] {  // each is "\r ESC[K line \r"
    const std::string text = text_of(drawn);
    return std::ranges::count(text, '\r') / 2;
  };
  EXPECT_LE(drawings(), 2) << "thirty steps in no time are one drawing";
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  sink->step(sample_step(31));
  EXPECT_TRUE(contains(text_of(drawn), " 31/40  epoch 4  loss 0.0323"));
  sink->epoch(sample_epoch(3));
  EXPECT_TRUE(text_of(drawn).ends_with("\r\x1b[K")) << "the line is empty when the log speaks";
  EXPECT_FALSE(contains(text_of((dir / "out.log").string()), "step 10/40"));
  ::close(fd);
}

TEST(ProgressBar, NeverIsLongerThanTheTerminal) {
  const report::Progress progress{
      .done = 10, .total = 40, .words = {"epoch 1", "loss 0.31", "42 samples/s"}};
  for (const int columns : {30, 40, 60, 120}) {
    int shown = 0;  // bytes that begin a character, less those of the colours
    const std::string line = report::progress_line(progress, columns);
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\x1b')
        i = line.find('m', i);
      else if ((static_cast<unsigned char>(line[i]) & 0xC0U) != 0x80U)
        ++shown;
    }
    EXPECT_LE(shown, columns) << line;
  }
  EXPECT_TRUE(contains(report::progress_line(progress, 120), " 25% "));
  EXPECT_TRUE(contains(report::progress_line(progress, 120), "42 samples/s"));
  EXPECT_EQ(report::progress_line({.done = 7, .total = 0, .words = {"loss 1"}}, 80),
            "step 7  loss 1");
}

TEST(Forecast, LeavesTheFirstStepOutAndCountsEvaluations) {
  report::Forecast forecast;
  EXPECT_EQ(forecast.seconds_left(10), 0);
  forecast.add_step(30);
  EXPECT_EQ(forecast.seconds_left(10), 300);
  for (int i = 0; i < 3; ++i) forecast.add_step(1);
  forecast.add_pause(4);
  EXPECT_EQ(forecast.seconds_left(10), 20);
  EXPECT_EQ(report::clock_text(3723.9), "1:02:03");
}

}  // namespace
}  // namespace braid::test
