// SPDX-License-Identifier: BSD-3-Clause
// The memory page and the section "Profile" of report.html: what they are given, and what a browser
// makes of it.
#include <gtest/gtest.h>

#include "braid/report/html.h"
#include "report/browser.h"
#include "report/memory_samples.h"
#include "report/page_profile.h"
#include "report/samples.h"
#include "support/expect.h"

namespace braid::test {
namespace {

using nlohmann::json;

json page_data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(MemoryPage, HoldsThePeakByCategoryModuleAndTensor) {
  const json data = page_data_of(report::memory_page(small_history()));
  const json peak = data["peak"];
  EXPECT_EQ(peak["bytes"], 1950);
  EXPECT_EQ(peak["ms"], 0.03);
  EXPECT_EQ(peak["module"], "layers.1");
  EXPECT_EQ(peak["op"], "aten::mm");
  EXPECT_EQ(peak["categories"], (json{1000, 0, 0, 300, 600, 50, 0, 0}));
  EXPECT_EQ(peak["counts"], (json{1, 0, 0, 1, 1, 1, 0, 0}));
  ASSERT_EQ(peak["modules"].size(), 3U);
  EXPECT_EQ(peak["modules"][1]["name"], "layers.0");
  EXPECT_EQ(peak["modules"][2]["by"], (json{0, 0, 0, 300, 0, 50, 0, 0}));
  EXPECT_EQ(peak["blocks"][0]["before"], true);
  EXPECT_EQ(peak["blocks"][1]["bytes"], 600);
  EXPECT_EQ(peak["blocks"][1]["category"], 4);
  EXPECT_EQ(data["points"]["peak"], 4);
  EXPECT_EQ(data["points"]["v"][4], (json{0, 0, 600, 600, 600, 600, 0, 0}));
  EXPECT_EQ(data["taken"], 3);
}

TEST(MemoryPage, EqualBlocksAreOneRowAndTheRestIsCounted) {
  report::MemoryHistory history = small_history();
  for (uint64_t i = 0; i < 200; ++i)
    history.changes.push_back({report::MemoryChange::What::taken, 7, 1, 4, 10 + i,
                               i < 100 ? 5000 : 100 + static_cast<int64_t>(i), 60'000});
  const json peak = page_data_of(report::memory_page(history))["peak"];
  EXPECT_EQ(peak["blocks"][0]["count"], 100);
  EXPECT_EQ(peak["blocks"].size(), 40U);
  EXPECT_EQ(peak["blocks_listed"], 100 + 39);
  EXPECT_EQ(peak["blocks_in_all"], 202);
}

TEST(MemoryPage, HasNothingFromOutsideAndNamesCannotBreakOut) {
  report::MemoryHistory history = small_history();
  history.names[1] = "</script><b>{{data}}";
  const std::string page = report::memory_page(history);
  EXPECT_FALSE(contains(page, "<b>"));
  for (const char* outside : {"src=\"http", "href=", "@import", "url(http", "https://"})
    EXPECT_FALSE(contains(page, outside)) << outside;
}

TEST(MemoryPage, ABrowserDrawsItWithoutErrorsAtBothWidths) {
  if (!has_browser()) GTEST_SKIP() << "there is no chromium";
  report::MemoryHistory history = small_history();
  history.did_not_fit = 4096;
  history.limit = 2000;
  history.names[2] = std::string(200, 'm');
  const json answers = ask_page(report::memory_page(history), R"((document, window) => {
    const layers = () => document.querySelectorAll("svg .layer").length;
    const answer = { title: document.querySelector("h1").textContent, before: layers(),
                     peak: document.querySelector("svg text.peak").textContent,
                     alert: document.querySelector(".alert").textContent,
                     tables: document.querySelectorAll("table").length };
    const svg = document.querySelector("svg.timeline"), box = svg.getBoundingClientRect();
    svg.dispatchEvent(new window.PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + 50 }));
    answer.tip = document.querySelector(".tip").textContent;
    const tip = document.querySelector(".tip").getBoundingClientRect();
    answer.tip_inside = tip.top >= box.top && tip.left >= 0 && tip.right <= window.innerWidth;
    document.querySelector(".key").click();
    answer.after = layers();
    return answer;
  })");
  ASSERT_EQ(answers.size(), 2U) << answers;
  for (const json& answer : answers) {
    EXPECT_EQ(answer["error"], "");
    EXPECT_EQ(answer["wider"], 0) << "scrolls sideways";
    EXPECT_EQ(answer["title"], "Max memory allocated: 1.90 KiB");
    EXPECT_EQ(answer["peak"], "peak 1.90 KiB at 0.03 ms");
    EXPECT_TRUE(contains(answer["alert"].get<std::string>(), "4.00 KiB more did not fit."));
    EXPECT_TRUE(contains(answer["tip"].get<std::string>(), "activation600 B")) << answer["tip"];
    EXPECT_EQ(answer["tip_inside"], true);
    EXPECT_EQ(answer["before"], 4);
    EXPECT_EQ(answer["after"], 3) << "a click on its name hides a category";
    EXPECT_EQ(answer["tables"], 2);
  }
}

void write_profile(const std::filesystem::path& dir) {
  report::MemoryHistory history = small_history();
  history.rank = 0;
  report::write_memory_files(history, dir);
  std::ofstream(dir / "summary.json") << R"({
    "steps": [{"name": "ProfilerStep#4", "seconds": 0.1}], "peak_tflops": 10, "bandwidth_gbs": 100,
    "ranks": [{"rank": 0, "seconds": 0.1, "forward": 0.029, "backward": 0.05, "optimizer": 0.01,
               "data": 0.002, "communication": 0.02, "exposed_communication": 0.004,
               "bubble": 0.003, "host_gap": 0.001, "other": 0.001},
              {"rank": 1, "seconds": 0.1, "forward": 0.03, "backward": 0.06, "other": 0.01}],
    "operators": [{"name": "aten::mm", "calls": 10, "seconds": 0.05, "share": 0.5, "flops": 1e9,
                   "bytes": 1e7, "tflops": 5.5, "intensity": 100},
                  {"name": "aten::add", "calls": 20, "seconds": 0.01, "share": 0.1, "flops": 1e6,
                   "bytes": 1e7, "tflops": 0.01, "intensity": 0.1}],
    "modules": [{"name": "layers.0", "forward": 0.01, "backward": 0.02}]})";
}

TEST(ProfileSection, ReadsTheSummaryAndTheMemoryOfRankZero) {
  TempDir dir;
  EXPECT_TRUE(report::profile_json(dir / "profile").is_null());
  write_profile(dir / "profile");
  const json profile = report::profile_json(dir / "profile");
  EXPECT_EQ(profile["ranks"][0]["exposed_communication"], 0.004);
  EXPECT_EQ(profile["ranks"][1]["bubble"], 0);
  EXPECT_EQ(profile["operators"][0]["intensity"], 100);
  EXPECT_EQ(profile["memory"]["peak"], 4);
  EXPECT_EQ(profile["memory"]["t"][4], 0.03);
  std::filesystem::remove(dir / "profile" / "summary.json");
  EXPECT_TRUE(report::profile_json(dir / "profile")["ranks"].empty()) << "the memory alone";
  std::ofstream(dir / "profile" / "summary.json") << "{";
  EXPECT_TRUE(contains(error_of([&] { report::profile_json(dir / "profile"); }),
                       "the profile in " + (dir / "profile").string() + " cannot be read"));
}

TEST(ProfileSection, ABrowserDrawsTimelineBarsAndRoofline) {
  if (!has_browser()) GTEST_SKIP() << "there is no chromium";
  TempDir dir;
  play(*report::jsonl_sink((dir / "a").string()), sample_info("demo", (dir / "a").string()), 2);
  write_profile(dir / "a" / "profile");
  const json answers = ask_page(report::html_report({dir / "a"}), R"((document) => ({
    layers: document.querySelectorAll("#profile svg .layer").length,
    bars: document.querySelectorAll("[data-profile-rank]").length,
    dots: document.querySelectorAll("svg circle.operator").length,
    roof: document.querySelector("svg text.roof").textContent,
    heads: [...document.querySelectorAll("#profile h3")].map((head) => head.firstChild.textContent)
  }))");
  ASSERT_EQ(answers.size(), 2U) << answers;
  for (const json& answer : answers) {
    EXPECT_EQ(answer["error"], "");
    EXPECT_EQ(answer["wider"], 0) << "scrolls sideways";
    EXPECT_EQ(answer["layers"], 4);
    EXPECT_EQ(answer["bars"], 2);
    EXPECT_EQ(answer["dots"], 2);
    EXPECT_EQ(answer["roof"], "10 TFLOP/s, 100 GB/s");
    EXPECT_EQ(answer["heads"], (json{"Memory of rank 0", "Time of a step", "Roofline",
                                     "Top operators", "Top modules"}));
  }
}

}  // namespace
}  // namespace braid::test
