// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "braid/report/sink.h"
#include "report/records.h"
#include "report/samples.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::test {
namespace {

using nlohmann::ordered_json;

std::vector<ordered_json> records_of(const std::string& file) {
  std::vector<ordered_json> records;
  for (const std::string& line : lines_of(file)) records.push_back(ordered_json::parse(line));
  return records;
}

std::vector<int64_t> steps_of(const std::string& file) {
  std::vector<int64_t> steps;
  for (const auto& record : records_of(file))
    if (record["type"] == "step") steps.push_back(record["step"]);
  return steps;
}

std::vector<int64_t> one_to(int64_t last) {
  std::vector<int64_t> numbers;
  for (int64_t i = 1; i <= last; ++i) numbers.push_back(i);
  return numbers;
}

TEST(Jsonl, NamesOfFieldsAreFrozen) {
  auto step = sample_step(1);
  step.grad_norm = 1;
  step.loss_scale = 1024;
  step.skipped = true;
  step.aux_loss = 0.02;
  step.max_load = 0.5;
  auto many = step;
  step.ranks = sample_ranks(4, 2);
  many.ranks = sample_ranks(65, 2);
  std::string fields;
  for (const std::string& line :
       {report::to_line(sample_info("a", "b")), report::to_line(step), report::to_line(many),
        report::to_line(sample_epoch(0)), report::to_line(sample_valid(0)),
        report::to_line(EventRecord{}), report::to_line(EndRecord{})}) {
    const auto record = ordered_json::parse(line);
    fields += record["type"].get<std::string>() + ":";
    for (const auto& [name, value] : record.items()) fields += " " + name;
    fields += "\n";
  }
  std::string golden;
  for (const std::string& line : lines_of(BRAID_SOURCE_DIR "/tests/golden/log_fields.txt"))
    if (!line.starts_with("#")) golden += line + "\n";
  EXPECT_EQ(fields, golden);
}

TEST(Jsonl, OptionalFieldsAreLeftOutAndNumbersThatAreNoneAreNull) {
  auto step = sample_step(1);
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.lr = std::numeric_limits<double>::infinity();
  const auto record = ordered_json::parse(report::to_line(step));
  EXPECT_TRUE(record["loss"].is_null());
  EXPECT_TRUE(record["lr"].is_null());
  for (const char* name : {"grad_norm", "loss_scale", "skipped", "aux_loss", "max_load",
                           "rank_seconds", "slowest_rank"})
    EXPECT_FALSE(record.contains(name));
}

TEST(Jsonl, NumbersComeBackBitForBit) {
  auto step = sample_step(3);
  step.loss = 0.1 + 0.2;
  EXPECT_EQ(ordered_json::parse(report::to_line(step))["loss"].get<double>(), 0.1 + 0.2);
}

TEST(Jsonl, EveryRecordIsInTheFileWhenTheCallReturns) {
  TempDir dir;
  const auto sink = report::jsonl_sink(dir.path().string());
  sink->start(sample_info("demo", dir.path().string()));
  sink->step(sample_step(1));
  EXPECT_EQ(records_of((dir / "log.jsonl").string()).size(), 2U);
  sink->step(sample_step(2));
  EXPECT_EQ(records_of((dir / "log.jsonl").string()).size(), 3U);
}

TEST(Jsonl, AfterAResumeEveryStepOccursOnce) {
  TempDir dir;
  const std::string file = (dir / "log.jsonl").string();
  auto info = sample_info("demo", dir.path().string());
  play(*report::jsonl_sink(dir.path().string()), info, 3);
  std::ofstream(file, std::ios::app) << "\0\0 power cut\n{\"type\":\"step\",\"st";

  info.first_step = 17;
  const auto sink = report::jsonl_sink(dir.path().string());
  sink->start(info);
  EXPECT_EQ(steps_of(file), one_to(17));
  for (int64_t step = 18; step <= 20; ++step) sink->step(sample_step(step));
  EXPECT_EQ(steps_of(file), one_to(20));

  const auto log = report::read_log(file);
  EXPECT_EQ(log.info.first_step, 17);
  EXPECT_EQ(log.epochs.size(), 1U) << "the epoch that ended at step 20 is trained again";
  EXPECT_EQ(log.valids.size(), 1U);
  EXPECT_TRUE(log.ends.empty());
}

TEST(Jsonl, ANewRunInAnOldFolderBeginsANewLog) {
  TempDir dir;
  for (int i = 0; i < 2; ++i)
    play(*report::jsonl_sink(dir.path().string()), sample_info("demo", dir.path().string()), 2);
  EXPECT_EQ(steps_of((dir / "log.jsonl").string()), one_to(20));
}

TEST(Jsonl, RecordsComeBackAsTheyWere) {
  TempDir dir;
  const auto sink = report::jsonl_sink(dir.path().string());
  sink->start(sample_info("demo", "runs/demo"));
  auto step = sample_step(1);
  step.tokens = 4096;
  step.grad_norm = 0.25;
  step.loss = std::numeric_limits<double>::infinity();
  sink->step(step);
  sink->valid(sample_valid(2));
  const auto log = report::read_log(dir / "log.jsonl");
  EXPECT_EQ(log.info.parameters, 23832960);
  EXPECT_EQ(log.info.config_spec, "configs/vit.yaml:short");
  ASSERT_EQ(log.steps.size(), 1U);
  EXPECT_TRUE(std::isnan(log.steps[0].loss));
  EXPECT_EQ(log.steps[0].tokens, 4096);
  EXPECT_EQ(log.steps[0].grad_norm, 0.25);
  EXPECT_FALSE(log.steps[0].loss_scale.has_value());
  ASSERT_EQ(log.valids.size(), 1U);
  EXPECT_EQ(log.valids[0].metrics, sample_valid(2).metrics);
}

TEST(Jsonl, AFullDiskIsAnErrorWithThePath) {
  TempDir dir;
  const auto sink = report::jsonl_sink(dir.path().string());
  sink->start(sample_info("demo", dir.path().string()));
  // A limit on the size of files refuses a write just as a full disk does.
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{2048, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  const std::string error = error_of([&] {
    for (int64_t step = 1; step <= 100; ++step) sink->step(sample_step(step));
  });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(contains(error, "cannot write " + (dir / "log.jsonl").string()));
}

TEST(Jsonl, AFolderThatCannotBeMadeIsAnErrorWithThePath) {
  TempDir dir;
  std::ofstream(dir / "file") << "x";
  const std::string below = (dir / "file").string() + "/run";
  EXPECT_TRUE(contains(error_of([&] { report::jsonl_sink(below)->start(sample_info("a", below)); }),
                       below));
}

}  // namespace
}  // namespace braid::test
