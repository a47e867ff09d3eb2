// SPDX-License-Identifier: BSD-3-Clause
// Who is blamed, from what the ranks say of themselves.
#include <gtest/gtest.h>

#include "comm/sign.h"

namespace braid::comm {
namespace {

Sign busy(const std::string& what) { return {.time = 100, .what = what, .counts = {{"w", 7}}}; }

// Stands in collective 7 of the group "w" of all three ranks.
Sign stuck(const std::string& call = "all_reduce sum Float [4]", Doing doing = Doing::waiting) {
  return {.doing = doing,
          .time = 100,
          .call = call + " of group w (call 7)",
          .group = "w",
          .number = 7,
          .peers = {0, 1, 2},
          .seconds = doing == Doing::waiting ? 30.0 : 0.1,
          .counts = {{"w", 8}}};
}

Sign ended(Doing doing, const std::string& reason = "") {
  Sign sign = busy("step 5");
  sign.doing = doing;
  sign.reason = reason;
  return sign;
}

std::string verdict(const std::vector<Sign>& signs, std::vector<bool> answered = {},
                    Cause cause = Cause::timeout) {
  if (answered.empty()) answered.assign(signs.size(), true);
  return verdict_of({.alarm = {.rank = 0, .cause = cause, .seconds = 30},
                     .now = 105,
                     .signs = signs,
                     .answered = answered});
}

const std::string head = "no answer for 30 s: all_reduce sum Float [4] of group w (call 7): ";

TEST(Verdict, PutsTheSilentRankBeforeAllOthers) {
  EXPECT_EQ(
      verdict({stuck(), busy("step 5, loading"), busy("step 5, forward")}, {true, true, false}),
      head + "rank 2 did not arrive; it last did: step 5, forward (no sign of life for 5 s)");
  EXPECT_EQ(verdict({stuck("barrier", Doing::failed), {}, ended(Doing::left, "disk full")},
                    {true, false, true}),
            "barrier of group w (call 7) was broken off: rank 1 is gone; it last did: nothing (no "
            "sign of life ever); rank 2 left: disk full");
}

TEST(Verdict, NamesAllThatDidNotCome) {
  EXPECT_EQ(verdict({stuck(), busy("step 5, loading"), busy("step 4")}),
            head +
                "rank 1 did not arrive; it last did: step 5, loading; rank 2 did not arrive; it "
                "last did: step 4");
}

TEST(Verdict, TellsOfRanksThatWaitForEachOther) {
  Sign other = stuck("all_reduce sum Float [9]");
  other.group = "v";
  other.call = "all_reduce sum Float [9] of group v (call 3)";
  other.number = 3;
  other.counts = {{"w", 7}, {"v", 4}};
  EXPECT_EQ(verdict({stuck(), stuck(), other}),
            head + "rank 2 did not arrive; it is in all_reduce sum Float [9] of group v (call 3)");
}

TEST(Verdict, TakesWhatMostRanksDoForRight) {
  EXPECT_EQ(verdict({stuck("barrier"), stuck(), stuck()}),
            head + "rank 0 made another call: barrier of group w (call 7)");
  EXPECT_EQ(verdict({stuck("all_gather Float [2] -> [7]"), stuck("all_gather Float [3] -> [7]"),
                     stuck("all_gather Float [2] -> [7]")})
                .find("another call"),
            std::string::npos)
      << "shares of several sizes are one call";
}

TEST(Verdict, BlamesTheNetworkWhenAllRanksAreThere) {
  Sign failed = stuck("barrier", Doing::failed);
  failed.reason = "Connection reset by peer";
  EXPECT_EQ(verdict({failed, failed, failed}, {}, Cause::failed),
            "barrier of group w (call 7) failed on rank 0: Connection reset by peer; all ranks are "
            "alive, so the network between them broke a connection");
  EXPECT_EQ(verdict({stuck(), stuck(), stuck()}),
            head +
                "all of its ranks have come; the network does not carry it, or the timeout is "
                "too short");
}

TEST(Verdict, IsEmptyWhenEveryRankHasSaidWhyItLeft) {
  EXPECT_EQ(verdict({ended(Doing::left, "nan"), ended(Doing::left, "nan"), ended(Doing::done)}, {},
                    Cause::left),
            "");
  EXPECT_EQ(verdict({ended(Doing::left, "nan"), busy("step 6"), stuck()}, {}, Cause::left),
            "rank 0 left: nan; rank 2 was in all_reduce sum Float [4] of group w (call 7)");
}

TEST(Verdict, TakesARankThatIsDoneForEarlyOnlyWhereItIsNeeded) {
  Sign pair = stuck();
  pair.peers = {0, 1};
  EXPECT_EQ(verdict({pair, ended(Doing::done), busy("step 6")}),
            "rank 1 ended too early; it last did: step 5; rank 0 was in all_reduce sum Float [4] "
            "of group w (call 7)");
  EXPECT_EQ(verdict({pair, busy("step 5"), ended(Doing::done)}),
            head + "rank 1 did not arrive; it last did: step 5");
}

TEST(Verdict, SignsTravelAsText) {
  Sign sign = stuck();
  sign.what = "caf\xe9 \"quoted\"\n";  // no UTF-8: replaced, not refused
  const Sign back = sign_of(to_text(sign)).value();
  EXPECT_EQ(back.call, sign.call);
  EXPECT_EQ(back.peers, sign.peers);
  EXPECT_EQ(back.counts, sign.counts);
  EXPECT_EQ(back.doing, Doing::waiting);
  EXPECT_EQ(alarm_of(to_text(Alarm{3, Cause::early, 4}), 4)->rank, 3);
}

TEST(Signs, ATextThatIsNoneIsNothing) {
  const std::string alarm = to_text(Alarm{3, Cause::early, 4}), sign = to_text(Sign{});
  EXPECT_FALSE(alarm_of(alarm, 3)) << "there is no rank 3";
  for (const char* text : {"", "hello", "{}", "[1]", "{\"rank\":\"x\"}", "{\"rank\":1e99}"}) {
    EXPECT_FALSE(alarm_of(text, 4)) << text;
    EXPECT_FALSE(sign_of(text)) << text;
  }
  EXPECT_FALSE(alarm_of(std::string(100'000, '['), 4));
  EXPECT_FALSE(sign_of("{\"doing\":9" + sign.substr(sign.find(','))));
  EXPECT_EQ(printable("a\x1b[2Jb\a"), "a?[2Jb?");
}

}  // namespace
}  // namespace braid::comm
