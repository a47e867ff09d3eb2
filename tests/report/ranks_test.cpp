// SPDX-License-Identifier: BSD-3-Clause
#include "report/ranks.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "report/rank_text.h"
#include "report/records.h"
#include "report/samples.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::test {
namespace {

using nlohmann::json;

TEST(Ranks, TheSlowOneIsTheOneThatWaitsLeastForOthers) {
  const auto ranks = sample_ranks(4, 2);
  EXPECT_EQ(report::slowest_first(ranks), (std::vector<size_t>{2, 0, 1, 3}));
  EXPECT_DOUBLE_EQ(report::busy_time(ranks[2]), 0.45);
  EXPECT_DOUBLE_EQ(report::own_work(ranks[2]), 0.4);
  EXPECT_DOUBLE_EQ(report::own_work(ranks[0]), 0.3);
  const auto slow = report::straggler_of(ranks);
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->rank, 2);
  EXPECT_NEAR(slow->above, 0.45 / 0.35 - 1, 1e-12);
}

TEST(Ranks, ARankThatWaitsForItsOwnDataHoldsUpTheOthersJustAsWell) {
  auto ranks = sample_ranks(4, -1);
  ranks[3] = {.seconds = 0.5, .data_wait = 0.19, .comm_wait = 0.01};
  ASSERT_TRUE(report::straggler_of(ranks).has_value());
  EXPECT_EQ(report::straggler_of(ranks)->rank, 3);
}

TEST(Ranks, NoneStandsOutByATenthOrLessNorAlone) {
  auto ranks = sample_ranks(4, -1);
  ranks[1].comm_wait = 0.12;  // 0.38 of 0.35: 9 %
  EXPECT_FALSE(report::straggler_of(ranks).has_value());
  ranks[1].comm_wait = 0.11;  // 11 %
  EXPECT_TRUE(report::straggler_of(ranks).has_value());
  EXPECT_FALSE(report::straggler_of({}).has_value());
  EXPECT_FALSE(report::straggler_of({{1, 0, 0}}).has_value());
  EXPECT_FALSE(report::straggler_of({{0, 0, 0}, {0, 0, 0}}).has_value()) << "no median to compare";
}

TEST(Ranks, ClocksThatDisagreeAndNumbersThatAreNoneDoNoHarm) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(report::own_work({.seconds = 1, .data_wait = 0.5, .comm_wait = 0.6}), 0);
  EXPECT_EQ(report::busy_time({.seconds = none}), 0);
  const auto spread = report::spread_of(std::vector<double>{3, none, 1});
  EXPECT_EQ(spread.min, 1);
  EXPECT_EQ(spread.median, 2);
  EXPECT_EQ(spread.max, 3);
}

TEST(Ranks, SumsFadeAndBeginAnewWithAnotherNumberOfRanks) {
  report::RankSums sums;
  EXPECT_TRUE(sums.means().empty());
  sums.add({{1, 0, 0}, {3, 0, 0}});
  sums.fade(0.5);
  sums.add({{2.5, 0, 0}, {3, 0, 0}});
  EXPECT_DOUBLE_EQ(sums.means()[0].seconds, 2);
  EXPECT_DOUBLE_EQ(sums.means()[1].seconds, 3);
  sums.add({{7, 1, 2}});
  ASSERT_EQ(sums.means().size(), 1U);
  EXPECT_EQ(sums.means()[0].data_wait, 1);
  EXPECT_EQ(sums.means()[0].comm_wait, 2);
}

TEST(RanksJsonl, AStepHasTheTimesOfEachRankInMicroseconds) {
  auto ranks = sample_ranks(3, 1);
  ranks[0].seconds = 0.123456789;
  const json line = json::parse(report::to_line(sample_step_of_ranks(1, ranks)));
  EXPECT_EQ(line["comm_wait"], 0.15);
  EXPECT_EQ(line["rank_seconds"], (json{0.123457, 0.5, 0.5}));
  EXPECT_EQ(line["rank_data_wait"], (json{0.05, 0.05, 0.05}));
  EXPECT_EQ(line["rank_comm_wait"], (json{0.15, 0.05, 0.15}));
  EXPECT_EQ(line["slowest_rank"], 1);
}

TEST(RanksJsonl, ALineDoesNotGrowWithAWorldOfThousands) {
  auto ranks = sample_ranks(4096, 77);
  ranks[4000] = {.seconds = 0.5, .data_wait = 0, .comm_wait = 0.01};
  const std::string text = report::to_line(sample_step_of_ranks(1, ranks));
  EXPECT_LT(text.size(), 1500U);
  const json line = json::parse(text);
  EXPECT_FALSE(line.contains("rank_seconds"));
  EXPECT_EQ(line["slowest_rank"], 4000);
  EXPECT_EQ(line["rank_spread"]["ranks"], 4096);
  EXPECT_EQ(line["rank_spread"]["comm_wait"],
            (json{{"min", 0.01}, {"median", 0.15}, {"max", 0.15}}));
  EXPECT_EQ(line["rank_spread"]["own_work"], (json{{"min", 0.3}, {"median", 0.3}, {"max", 0.49}}));
  EXPECT_EQ(line["rank_spread"]["busy"], (json{{"min", 0.35}, {"median", 0.35}, {"max", 0.49}}));
  ASSERT_EQ(line["slowest_ranks"].size(), 8U);
  EXPECT_EQ(line["slowest_ranks"][1],
            (json{{"rank", 77}, {"seconds", 0.5}, {"data_wait", 0.05}, {"comm_wait", 0.05}}));
}

TEST(RanksJsonl, SixtyFourRanksAreWrittenOneByOneAndSixtyFiveAreNot) {
  const auto has_each = [](int64_t count) {
    return json::parse(report::to_line(sample_step_of_ranks(1, sample_ranks(count, 0))))
        .contains("rank_seconds");
  };
  EXPECT_TRUE(has_each(64));
  EXPECT_FALSE(has_each(65));
}

TEST(RanksJsonl, BothFormsComeBackAsTheyWere) {
  TempDir dir;
  const auto sink = report::jsonl_sink(dir.path().string());
  sink->start(sample_info_of_ranks("runs/demo", 4));
  sink->step(sample_step_of_ranks(1, sample_ranks(4, 2)));
  sink->step(sample_step_of_ranks(2, sample_ranks(100, 42)));
  const auto log = report::read_log(dir / "log.jsonl");
  EXPECT_EQ(log.info.ranks, 4);
  EXPECT_EQ(log.info.mesh, "data 2, shard 2");
  EXPECT_EQ(log.info.latency, 1.2e-4);
  EXPECT_EQ(log.steps[0].comm_wait, 0.15);
  ASSERT_EQ(log.steps[0].ranks.size(), 4U);
  EXPECT_EQ(log.steps[0].ranks[2].comm_wait, 0.05);
  EXPECT_TRUE(log.steps[1].ranks.empty());
  ASSERT_EQ(log.spreads.size(), 1U);
  EXPECT_EQ(log.spreads[0].step, 2);
  EXPECT_EQ(log.spreads[0].ranks, 100);
  EXPECT_EQ(log.spreads[0].own_work.max, 0.4);
  EXPECT_EQ(log.spreads[0].slowest.front().rank, 42);
  EXPECT_EQ(log.spreads[0].slowest.front().time.comm_wait, 0.05);
}

TEST(RanksJsonl, ALogFromBeforeThereWereRanksIsReadAsOneRank) {
  TempDir dir;
  json run = json::parse(report::to_line(sample_info_of_ranks("runs/old", 4)));
  json step = json::parse(report::to_line(sample_step(1)));
  for (const char* name : {"ranks", "mesh", "latency"}) run.erase(name);
  step.erase("comm_wait");
  std::ofstream(dir / "log.jsonl") << run.dump() << "\n" << step.dump() << "\n";
  const auto log = report::read_log(dir / "log.jsonl");
  EXPECT_EQ(log.info.ranks, 1);
  EXPECT_EQ(log.info.mesh, "");
  EXPECT_EQ(log.info.latency, 0);
  EXPECT_EQ(log.steps[0].comm_wait, 0);
  EXPECT_TRUE(log.steps[0].ranks.empty());
}

TEST(RanksJsonl, ListsOfDifferentLengthsAreABrokenLine) {
  TempDir dir;
  json step = json::parse(report::to_line(sample_step_of_ranks(1, sample_ranks(2, 0))));
  step["rank_comm_wait"].erase(0);
  std::ofstream(dir / "log.jsonl") << report::to_line(sample_info("a", "b")) << "\n"
                                   << step.dump() << "\n";
  EXPECT_TRUE(contains(error_of([&] { report::read_log(dir / "log.jsonl"); }),
                       "log.jsonl:2: this is not a record"));
}

TEST(RankTable, ARowForEachOfAFewRanks) {
  const auto lines = report::rank_table(sample_ranks(3, 1));
  const std::vector<std::string> wanted = {
      "   rank     step time      own work     data wait     comm wait",
      "      0      500.0 ms      300.0 ms       50.0 ms      150.0 ms",
      "      1      500.0 ms      400.0 ms       50.0 ms       50.0 ms  slowest, +29 %",
      "      2      500.0 ms      300.0 ms       50.0 ms      150.0 ms"};
  EXPECT_EQ(lines, wanted);
}

TEST(RankTable, OfManyRanksTheSlowestAndTheSpreadOfAll) {
  EXPECT_EQ(report::rank_table(sample_ranks(16, 1)).size(), 17U);
  const auto lines = report::rank_table(sample_ranks(17, 9));
  ASSERT_EQ(lines.size(), 10U);
  EXPECT_TRUE(contains(lines[1], "      9      500.0 ms")) << "the slowest comes first";
  EXPECT_EQ(lines[9],
            "  all 17, min / median / max: step time 500.0 / 500.0 / 500.0 ms, own work 300.0 / "
            "300.0 / 400.0 ms, data wait 50.0 / 50.0 / 50.0 ms, comm wait 50.0 / 150.0 / 150.0 ms");
}

}  // namespace
}  // namespace braid::test
