// SPDX-License-Identifier: BSD-3-Clause
// The section "Ranks" of report.html: what the page is given, and what a browser makes of it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "braid/report/html.h"
#include "report/page_ranks.h"
#include "report/samples.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::test {
namespace {

using report::PageJson;

// Rank `slow` is slow in the first steps, rank 0 in the last tenth.
report::RunLog log_of(int64_t ranks, int64_t slow, int64_t steps = 20) {
  TempDir dir;
  const auto sink = report::jsonl_sink(dir.path().string());
  sink->start(sample_info_of_ranks("runs/demo", ranks));
  for (int64_t step = 1; step <= steps; ++step)
    sink->step(sample_step_of_ranks(step, sample_ranks(ranks, 10 * step <= 9 * steps ? slow : 0)));
  return report::read_log(dir / "log.jsonl");
}

TEST(RanksHtml, OneRankHasNoSection) {
  report::RunLog log;
  log.steps.push_back(sample_step(1));
  EXPECT_TRUE(report::ranks_json(log).is_null());
  EXPECT_TRUE(report::rank_curves_json(log).is_null());
}

TEST(RanksHtml, AFewRanksHaveTheirMeansOverTheRunAndItsLastTenth) {
  const PageJson json = report::ranks_json(log_of(4, 2));
  EXPECT_EQ(json["count"], 4);
  EXPECT_EQ(json["mesh"], "data 2, shard 2");
  EXPECT_EQ(json["latency"], 1.2e-4);
  EXPECT_EQ(json["many"], false);
  EXPECT_EQ(json["all"]["steps"], 20);
  EXPECT_EQ(json["all"]["slowest"], 2);
  ASSERT_EQ(json["all"]["rows"].size(), 4U);
  EXPECT_NEAR(json["all"]["rows"][2]["own"].get<double>(), 0.39, 1e-6);  // 18 x 0.4 + 2 x 0.3
  EXPECT_NEAR(json["all"]["rows"][0]["own"].get<double>(), 0.31, 1e-6);
  EXPECT_EQ(json["all"]["rows"][2]["data"], 0.05);
  EXPECT_EQ(json["last"]["steps"], 2);
  EXPECT_EQ(json["last"]["slowest"], 0);
  EXPECT_EQ(json["last"]["rows"][0]["own"], 0.4);
  EXPECT_NEAR(json["last"]["rows"][0]["above"].get<double>(), 0.45 / 0.35 - 1, 1e-5);
  EXPECT_NEAR(json["last"]["rows"][1]["above"].get<double>(), 0, 1e-5);
  EXPECT_EQ(json["last"]["spread"]["busy"], (PageJson{0.35, 0.35, 0.45}));
}

TEST(RanksHtml, OfManyRanksTheSpreadAndThoseOftenSlow) {
  const PageJson json = report::ranks_json(log_of(1024, 700));
  EXPECT_EQ(json["many"], true);
  EXPECT_EQ(json["all"]["slowest"], 700);
  const auto rows = json["all"]["rows"];
  ASSERT_LE(rows.size(), 16U);
  EXPECT_EQ(rows[0]["rank"], 700);
  EXPECT_NEAR(rows[0]["share"].get<double>(), 0.9, 1e-6);
  EXPECT_NEAR(rows[0]["own"].get<double>(), 0.4, 1e-6) << "of the steps in which it is named";
  EXPECT_NEAR(rows[0]["above"].get<double>(), 0.9 * 0.1 / 0.35, 1e-6) << "of all steps";
  EXPECT_EQ(rows[1]["rank"], 0);
  EXPECT_EQ(json["all"]["spread"]["own"], (PageJson{0.3, 0.3, 0.4}));
  EXPECT_EQ(json["last"]["rows"][0]["rank"], 0);
  EXPECT_LT(json.dump().size(), 8000U);
}

TEST(RanksHtml, ARunThatWentOnWithOtherRanksShowsThoseItHasNow) {
  report::RunLog log = log_of(4, 1);
  log.info.ranks = 2;
  EXPECT_TRUE(report::ranks_json(log)["all"].is_null()) << "no step of two ranks yet";
  log.steps.push_back(sample_step_of_ranks(21, sample_ranks(2, 1)));
  const PageJson json = report::ranks_json(log);
  EXPECT_EQ(json["all"]["steps"], 1);
  EXPECT_EQ(json["all"]["rows"].size(), 2U);
}

TEST(RanksHtml, TheCurvesAreThoseOfTheSlowestAndTheMedian) {
  for (const int64_t ranks : {4, 100}) {
    report::RunLog log = log_of(ranks, 2);
    log.steps.front().ranks.clear();
    if (!log.spreads.empty()) log.spreads.erase(log.spreads.begin());
    const PageJson json = report::rank_curves_json(log);
    EXPECT_TRUE(json["slowest"]["v"][0].is_null()) << "a step without times is a gap";
    EXPECT_EQ(json["slowest"]["v"][1], 450);
    EXPECT_EQ(json["median"]["v"][1], 350);
    EXPECT_EQ(json["median"]["s"].back(), 20);
  }
}

void write_ranks(const std::filesystem::path& dir, int64_t ranks, int64_t slow) {
  const auto sink = report::jsonl_sink(dir.string());
  sink->start(sample_info_of_ranks(dir.string(), ranks));
  for (int64_t step = 1; step <= 10; ++step)
    sink->step(sample_step_of_ranks(step, sample_ranks(ranks, slow)));
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Only a browser knows whether the script of the page works.
TEST(RanksHtml, ABrowserDrawsABarForEachRankAndMarksTheSlowest) {
  if (std::system("command -v chromium > /dev/null") != 0) GTEST_SKIP() << "there is no chromium";
  TempDir dir;
  write_ranks(dir / "few", 4, 2);
  write_ranks(dir / "many", 100, 42);
  const std::string page = (dir / "page.html").string(), drawn = (dir / "drawn.html").string();
  std::ofstream(page) << report::html_report({dir / "few", dir / "many"});
  const std::string command =
      "chromium --headless --no-sandbox --disable-gpu --virtual-time-budget=1000 --user-data-dir=" +
      (dir / "profile").string() + " --dump-dom file://" + page + " > " + drawn + " 2> /dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const std::string dom = text_of(drawn);
  EXPECT_EQ(count_of(dom, "class=\"bar-row slow\""), 2U);
  EXPECT_EQ(count_of(dom, "data-rank="), 4U + 8U)
      << "all four, and the slowest eight of the hundred";
  EXPECT_TRUE(contains(dom,
                       "Rank 2 is the slowest: 450 ms a step without waiting for others, "
                       "+29 % against the median."));
  EXPECT_TRUE(contains(dom,
                       "Rank 42 is the slowest: over all steps +29 % against the median of "
                       "350 ms."));
}

TEST(RanksHtml, PageAndSummaryHaveTheWaitForOthers) {
  TempDir dir;
  write_ranks(dir.path(), 4, 2);
  const report::RunSummary summary = report::summarize(dir.path());
  EXPECT_EQ(summary.ranks, 4);
  EXPECT_NEAR(summary.comm_wait, 0.3, 1e-12);
  const std::string page = report::html_report({dir.path()});
  EXPECT_TRUE(contains(page, "<section id=\"ranks\">"));
  EXPECT_TRUE(contains(page, "function rankSection("));
  EXPECT_TRUE(contains(page, "\"comm\":30.0"));
}

}  // namespace
}  // namespace braid::test
