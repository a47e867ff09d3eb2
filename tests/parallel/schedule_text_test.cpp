// SPDX-License-Identifier: BSD-3-Clause
// Schedules as YAML, own lists, and the picture.
#include <gtest/gtest.h>

#include "braid/parallel/schedule.h"
#include "support/expect.h"

namespace braid::parallel {
namespace {

using test::contains;
using test::error_of;
using enum ScheduleKind;

TEST(ScheduleText, YamlComesBackTheSame) {
  for (const ScheduleKind kind :
       {naive, gpipe, one_f_one_b, interleaved, zb_h1, zb_h2, zb_v, pipedream, pipedream_2bw})
    for (const bool gathers : {false, true}) {
      ScheduleOptions options = {.kind = kind, .ranks = 3, .micros = 7};
      options.chunks = kind == interleaved ? 2 : 1;
      options.gathers = gathers;
      const Schedule schedule = make_schedule(options);
      const std::string yaml = to_yaml(schedule);
      EXPECT_EQ(schedule_from(Config::parse(yaml)), schedule) << yaml;
      for (size_t begin = 0, end; (end = yaml.find('\n', begin)) != yaml.npos; begin = end + 1)
        EXPECT_LE(end - begin, 102u) << yaml.substr(begin, end - begin);
    }
}

TEST(ScheduleText, SendsAndReceivesArePlacedWhereTheFileHasNone) {
  const Schedule own = schedule_from(Config::parse(R"(
name: 1f1b
ranks: 2
micros: 3
lists:
  - [F0, F1, B0, F2, B1, B2]
  - [F0, B0, F1, B1, F2, B2]
)"));
  EXPECT_EQ(own, make_schedule({.kind = one_f_one_b, .ranks = 2, .micros = 3}));
}

TEST(ScheduleText, AnOwnListMayPlaceStagesAsItLikes) {
  const Schedule own = schedule_from(Config::parse(R"(
ranks: 2
stages: 3
micros: 1
rank_of: [1, 0, 1]
lists:
  - [F0, B0]
  - [F0@0, F0@2, I0@2, W0@2, B0@0]
)"));
  EXPECT_EQ(own.name, "own");
  EXPECT_EQ(to_text(own), "rank 0: F0 B0\nrank 1: F0@0 F0@2 I0@2 W0@2 B0@0\n");
  const Timeline clock = simulate(own);
  EXPECT_EQ(clock.makespan, 0.5 + 1 + 0.5 + 0.5 + 2 + 1);  // W runs beside the other rank's B
  EXPECT_EQ(clock.in_flight, (std::vector{1, 2}));
}

std::string text_refused(const std::string& lists,
                         const std::string& more = "ranks: 2\nmicros: 1\n") {
  return error_of([&] { schedule_from(Config::parse(more + lists, "own.yaml")); });
}

TEST(ScheduleText, SaysWhatIsWrongWithAFile) {
  const std::string missing = text_refused("lists:\n  - [F0, RG0, B0]\n  - [RA0, F0, B0, SG0]\n");
  EXPECT_TRUE(
      contains(missing, "schedule own: rank 0: SA0@0 is missing: rank 1 needs it for F0@1"));
  EXPECT_TRUE(contains(missing, "leave out all sends and receives"));
  EXPECT_TRUE(contains(text_refused("lists:\n  - [F0, F0, B0]\n  - [F0, B0]\n"),
                       "rank 0, action 1 (F0@0) stands a second time"));
  const std::string unknown = text_refused("lists:\n  - [F0, X0]\n  - [F0, B0]\n");
  EXPECT_TRUE(contains(unknown, "own.yaml:4"));
  EXPECT_TRUE(contains(unknown, "X0 is no action"));
  EXPECT_TRUE(contains(text_refused("lists:\n  - [F0x]\n  - []\n"), "F0x is no action"));
  EXPECT_TRUE(contains(text_refused("lists:\n  - [F]\n  - []\n"), "F is no action"));
  EXPECT_TRUE(contains(text_refused("list:\n  - [F0]\n"), "unknown key list"));
  EXPECT_TRUE(contains(text_refused("lists: 3\n"), "lists is not a list"));
  EXPECT_TRUE(contains(text_refused("lists: []\n"), "0 lists for ranks = 2"));
  EXPECT_TRUE(contains(text_refused("lists: []\n", "ranks: two\nmicros: 1\n"), "ranks = two"));
  EXPECT_TRUE(contains(text_refused("lists: []\n", "ranks: 2\n"), "micros"));
  EXPECT_TRUE(contains(text_refused("lists:\n  - [F0, B0]\n", "ranks: 1\nstages: 2\nmicros: 1\n"),
                       "says which one"));
}

TEST(ScheduleText, AnOwnListThatNeverEndsIsRefused) {
  const std::string text =
      text_refused("lists:\n  - [F0, B0, F1, B1]\n  - [F0, F1, B0, B1]\n", "ranks: 2\nmicros: 2\n");
  EXPECT_TRUE(contains(text, "never ends: rank 0 waits at B0@0 (action 1), rank 1 waits at F1@1"));
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ScheduleText, ThePictureHasACellForEachPass) {
  Schedule schedule = make_schedule({.kind = zb_h1, .ranks = 3, .micros = 6});
  schedule.name = "a < b & c";
  const std::string svg = to_svg(schedule, simulate(schedule));
  EXPECT_EQ(count_of(svg, "<title>"), 3u * 3 * 6);
  EXPECT_EQ(count_of(svg, "in flight"), 3u);
  EXPECT_TRUE(contains(svg, "a &lt; b &amp; c: ranks 3, stages 3, micro-batches 6"));
  EXPECT_TRUE(contains(svg, "time 20, idle 10.0 %"));
  EXPECT_TRUE(contains(svg, "<title>W5@2: 19 to 20</title>"));
  EXPECT_EQ(count_of(svg, "<svg"), count_of(svg, "</svg>"));
  const Schedule flowing = make_schedule({.kind = pipedream, .ranks = 2, .micros = 3});
  EXPECT_EQ(count_of(to_svg(flowing, simulate(flowing)), "fill=\"#111\""), 6u);  // updates
}

}  // namespace
}  // namespace braid::parallel
