// SPDX-License-Identifier: BSD-3-Clause
// Logs that hold what no run has written. BRAID_FUZZ=10000 report_test --gtest_filter='HostileLog*'
// tries more.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "braid/report/html.h"
#include "braid/report/sink.h"
#include "report/records.h"
#include "report/samples.h"
#include "support/expect.h"
#include "support/files.h"
#include "support/mutate.h"

namespace braid::test {
namespace {

TEST(HostileLog, OddLinesDoNotKeepARunFromGoingOn) {
  TempDir dir;
  const std::string file = (dir / "log.jsonl").string();
  auto info = sample_info("demo", dir.path().string());
  play(*report::jsonl_sink(dir.path().string()), info, 3);
  const size_t whole = lines_of(file).size();
  std::ofstream(file, std::ios::app)
      << "{\"type\":3}\n{\"type\":\"step\",\"step\":\"x\"}\n[1]\n{}\n{\"type\":\"event\"}\n"
      << std::string(500'000, '[') << "\n{\"type\":\"step\",\"step\":1e300}\n";
  EXPECT_EQ(lines_of(file).size(), whole + 7);
  info.first_step = 1'000'000;
  report::jsonl_sink(dir.path().string())->start(info);
  EXPECT_EQ(lines_of(file).size(), whole + 1) << "all that the run wrote, and its new start";
  EXPECT_EQ(report::read_log(file).info.first_step, 1'000'000);
}

TEST(HostileLog, AWrongTypeIsToldInWords) {
  TempDir dir;
  const std::string file = (dir / "log.jsonl").string();
  std::ofstream(file) << report::to_line(sample_info("demo", "runs/demo"))
                      << "\n{\"type\":\"event\",\"kind\":\"x\",\"step\":\"y\",\"text\":\"\"}\n";
  const std::string text = error_of([&] { report::read_log(file); });
  EXPECT_TRUE(contains(text, "log.jsonl:2: this is not a record: step is \"y\""));
  EXPECT_EQ(text.find("json.exception"), std::string::npos);
}

TEST(HostileLog, ANamedPipeIsRefusedAtOnce) {
  TempDir dir;
  ASSERT_EQ(mkfifo((dir / "log.jsonl").c_str(), 0600), 0);
  auto info = sample_info("demo", dir.path().string());
  info.first_step = 3;
  const std::string text = error_of([&] { report::jsonl_sink(dir.path().string())->start(info); });
  EXPECT_TRUE(contains(text, "log.jsonl: it is a named pipe"));
  EXPECT_TRUE(contains(error_of([&] { report::read_log(dir / "log.jsonl"); }), "a named pipe"));
}

TEST(HostileLog, ProfileOfManyBracketsIsRefused) {
  TempDir dir;
  play(*report::jsonl_sink(dir.path().string()), sample_info("demo", dir.path().string()), 2);
  std::filesystem::create_directory(dir / "profile");
  std::ofstream(dir / "profile/summary.json")
      << std::string(200'000, '[') << std::string(200'000, ']');
  EXPECT_TRUE(contains(error_of([&] { report::html_report({dir.path()}); }),
                       "its JSON is nested 200000 levels deep"));
}

TEST(HostileLog, DamagedLines) {
  TempDir dir;
  const HangGuard guard(600);
  const std::string file = (dir / "log.jsonl").string();
  play(*report::jsonl_sink(dir.path().string()), sample_info("demo", dir.path().string()), 1);
  const std::vector<std::string> good = lines_of(file);
  const int count = fuzz_count(60);
  int read = 0, refused = 0;
  for (int i = 0; i < count; ++i) {
    Mutator mutator(static_cast<uint64_t>(i));
    std::vector<std::string> lines = good;
    std::string& line = lines[mutator.below(lines.size())];
    line = i % 3 == 0 ? mutator.damaged_text(line)
                      : mutator.damaged_json(nlohmann::json::parse(line))
                            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    std::string text;
    for (const std::string& each : lines) text += each + '\n';
    std::ofstream(file, std::ios::binary) << text;
    try {
      const std::string kept = report::lines_until(file, 5);
      std::ofstream(dir / "kept.jsonl", std::ios::binary) << kept;
      if (kept.find("\"type\":\"run\"") != std::string::npos) report::read_log(dir / "kept.jsonl");
      report::read_log(file);
      ++read;
    } catch (const DataError&) {
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\nby the line\n" << line.substr(0, 2000);
    }
  }
  EXPECT_EQ(read + refused, count);
}

}  // namespace
}  // namespace braid::test
