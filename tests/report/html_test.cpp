// SPDX-License-Identifier: BSD-3-Clause
#include "braid/report/html.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/curves.h"
#include "report/samples.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::test {
namespace {

using nlohmann::json;

void write_run(const std::filesystem::path& dir, const std::string& name, int64_t epochs = 4) {
  play(*report::jsonl_sink(dir.string()), sample_info(name, dir.string()), epochs);
}

json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(Html, HoldsEveryRunAndNothingFromOutside) {
  TempDir dir;
  write_run(dir / "a", "first");
  write_run(dir / "b", "second", 2);
  const std::string page = report::html_report({dir / "a", dir / "b"});
  EXPECT_TRUE(contains(page, "<title>braid: first, second</title>"));
  const json runs = data_of(page);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[1]["label"], "second");
  EXPECT_EQ(runs[1]["steps"], 20);
  EXPECT_EQ(runs[0]["curves"]["valid"]["s"], (json{10, 20, 30, 40}));
  EXPECT_EQ(runs[0]["metrics"]["rmse_u10"]["best"]["value"], 0.0625);
  EXPECT_EQ(runs[0]["metrics"]["accuracy"]["best"]["value"], 0.8);
  for (const char* outside : {"src=\"http", "href=", "@import", "url(http"})
    EXPECT_FALSE(contains(page, outside));
}

TEST(Html, NamesCannotBreakOutOfThePage) {
  TempDir dir;
  const std::string name = "</script><b>&\"x{{data}}";
  write_run(dir / "a", name);
  const std::string page = report::html_report({dir / "a"});
  EXPECT_TRUE(contains(page, "<title>braid: &lt;/script&gt;&lt;b&gt;&amp;&quot;x{{data}}</title>"));
  EXPECT_FALSE(contains(page, "<b>"));
  EXPECT_EQ(data_of(page)[0]["label"], name);
}

TEST(Html, RunsOfOneNameAreToldApartByTheirFolders) {
  TempDir dir;
  write_run(dir / "a", "same");
  write_run(dir / "b", "same");
  const json runs = data_of(report::html_report({dir / "a", dir / "b"}));
  EXPECT_EQ(runs[0]["label"], (dir / "a").string());
  EXPECT_EQ(runs[1]["label"], (dir / "b").string());
}

TEST(Html, LongRunsAreThinnedAndKeepTheirPeaks) {
  report::RunLog log;
  for (int64_t step = 1; step <= 50'000; ++step) log.steps.push_back(sample_step(step));
  log.steps[31'415].loss = 77;
  const report::Curves curves(log);
  const auto loss = [](const StepRecord& step) { return step.loss; };
  const auto seconds = [](const StepRecord& step) { return step.seconds; };
  const report::Curve raw = curves.extremes(loss), smooth = curves.smooth(loss);
  EXPECT_LE(raw.step.size(), report::most_points);
  EXPECT_EQ(*std::ranges::max_element(raw.value), 77);
  EXPECT_EQ(smooth.step.size(), report::most_points);
  EXPECT_EQ(smooth.step.back(), 50'000);
  EXPECT_EQ(smooth.seconds.back(), 25'000);
  const report::Curve rate =
      curves.ratio([](const StepRecord& step) { return double(step.samples); }, seconds);
  EXPECT_LE(rate.step.size(), report::most_points);
  EXPECT_EQ(rate.value.front(), 32);
}

TEST(Html, AMissingOrBrokenLogIsADataError) {
  TempDir dir;
  EXPECT_TRUE(contains(error_of([&] { report::html_report({dir / "none"}); }),
                       "no log at " + (dir / "none").string() + "/log.jsonl"));
  write_run(dir / "a", "a");
  const std::string file = (dir / "a").string() + "/log.jsonl";
  std::ofstream(file, std::ios::app) << "{\"type\":\"step\",\"step\":41}\n";
  const std::string error = error_of([&] { report::summarize(dir / "a"); });
  EXPECT_TRUE(contains(error, file + ":52: this is not a record"));
  EXPECT_TRUE(contains(error, "fix: take that line out"));
  std::ofstream(file, std::ios::trunc);
  EXPECT_TRUE(
      contains(error_of([&] { report::summarize(dir / "a"); }), "has no record of type run"));
}

TEST(Html, TheSinkWritesPageAndPictureWhileTheRunGoesOn) {
  TempDir dir;
  const RunInfo info = sample_info("demo", dir.path().string());
  Log log({.rank = 0, .file = {}, .quiet = true});
  report::Sinks sinks = report::open_sinks({}, dir.path().string(), log, {});
  sinks.start(info);
  sinks.step(sample_step(1));
  sinks.picture(sample_picture());
  sinks.valid(sample_valid(0));
  EXPECT_TRUE(text_of((dir / "picture.png").string()).starts_with("\x89PNG"));
  const json run = data_of(text_of((dir / "report.html").string()))[0];
  EXPECT_TRUE(run["picture"].get<std::string>().starts_with("data:image/png;base64,iVBORw0KGgo"));
  EXPECT_EQ(run["reason"], "");
  sinks.end({.step = 1, .seconds = 1, .reason = "signal", .metrics = {}});
  EXPECT_EQ(data_of(text_of((dir / "report.html").string()))[0]["reason"], "signal");
}

TEST(Summary, HasTheNumbersOfTheWholeRun) {
  TempDir dir;
  write_run(dir / "a", "demo");
  const report::RunSummary summary = report::summarize(dir / "a");
  EXPECT_EQ(summary.name, "demo");
  EXPECT_EQ(summary.steps, 40);
  EXPECT_EQ(summary.loss, 1.0 / 40);
  EXPECT_DOUBLE_EQ(summary.seconds, 20);
  EXPECT_DOUBLE_EQ(summary.samples_per_second, 32);
  EXPECT_DOUBLE_EQ(summary.tflops, 2);
  EXPECT_NEAR(summary.data_wait, 0.1, 1e-12);
  EXPECT_EQ(summary.memory, int64_t{3} << 30);
  EXPECT_EQ(summary.reason, "epochs");
  ASSERT_EQ(summary.metrics.size(), 2U);
  EXPECT_EQ(summary.metrics[1], (std::pair<std::string, double>{"rmse_u10", 0.0625}));
  ASSERT_TRUE(summary.best.has_value());
  EXPECT_EQ(summary.best->name, "rmse_u10");
  EXPECT_EQ(summary.best->step, 40);
}

TEST(Sinks, UnknownNamesAndAPageWithoutALogAreRefused) {
  Log log({.rank = 0, .file = {}, .quiet = true});
  const auto open = [&](std::vector<std::string> to) {
    report::ReportOptions options;
    options.to = std::move(to);
    return error_of([&] { report::open_sinks(options, "runs/x", log, {}); });
  };
  EXPECT_TRUE(contains(open({"tensorbord"}), "write tensorboard in place of tensorbord"));
  EXPECT_TRUE(contains(open({"console", "html"}), "add jsonl to report.to"));
}

}  // namespace
}  // namespace braid::test
