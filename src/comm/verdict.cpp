// SPDX-License-Identifier: BSD-3-Clause
// Who is to blame: reads the signs of all ranks after an alarm.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "comm/sign.h"

namespace braid::comm {
namespace {

using Ranks = std::vector<int>;

std::string ranks_text(const Ranks& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string last_of(const Sign& sign) {
  if (!sign.what.empty()) return sign.what;
  return sign.last.empty() ? "nothing" : sign.last;
}

// Shapes may differ between ranks where the call allows it: kind, operation and dtype may not.
std::string_view essence(const Sign& sign) {
  const std::string_view call = sign.call;
  const bool whole = call.starts_with("all_reduce") || call.starts_with("broadcast");
  return call.substr(0, call.find(whole ? " of group" : "["));
}

class Court {
 public:
  explicit Court(const Findings& found) : found_(found) {
    for (int rank = 0; rank < size(); ++rank) {
      const Doing doing = sign(rank).doing;
      if (!found_.answered[static_cast<size_t>(rank)]) {
        gone_.push_back(rank);
      } else if (doing == Doing::left) {
        left_.push_back(rank);
      } else if (doing == Doing::done) {
        done_.push_back(rank);
      } else if (doing == Doing::busy) {
        busy_.push_back(rank);
      } else {
        stuck_.push_back(rank);
      }
    }
  }

  std::string sentence() const {
    if (!gone_.empty()) return about_gone();
    if (!left_.empty()) return about_left();
    if (const Ranks early = ended_early(); !early.empty()) return about_early(early);
    if (const int told = told_failure(); told >= 0) return sign(told).reason;
    if (const std::string text = about_other_calls(); !text.empty()) return text;
    if (found_.alarm.cause == Cause::no_progress) return about_progress();
    return about_absent();
  }

 private:
  int size() const { return static_cast<int>(found_.signs.size()); }
  const Sign& sign(int rank) const { return found_.signs[static_cast<size_t>(rank)]; }
  // The network's own timeout may end a call just before ours does.
  bool late(const Sign& stuck) const {
    return stuck.doing == Doing::waiting || stuck.seconds > 0.9 * found_.alarm.seconds;
  }
  bool needs(const Sign& victim, int rank) const {
    return std::find(victim.peers.begin(), victim.peers.end(), rank) != victim.peers.end();
  }
  // Has not begun the call that the victim stands in; of messages and splits nobody can tell.
  bool absent(const Sign& victim, int rank) const {
    if (victim.number < 0) return true;
    const auto count = sign(rank).counts.find(victim.group);
    return count == sign(rank).counts.end() || count->second <= victim.number;
  }
  Ranks absent_from(int victim) const;
  std::pair<int, Ranks> blamed() const;
  int victim_of(const Ranks& culprits) const;
  std::string opening(int victim) const;
  std::string waiting_text() const;
  std::string life_of(int rank) const;
  std::string state_of(int rank) const;
  int told_failure() const;
  Ranks ended_early() const;
  std::string about_gone() const;
  std::string about_left() const;
  std::string about_early(const Ranks& early) const;
  std::string about_other_calls() const;
  std::string about_progress() const;
  std::string about_absent() const;

  const Findings& found_;
  Ranks gone_, left_, done_, busy_, stuck_;
};

Ranks Court::absent_from(int victim) const {
  Ranks result;
  for (const int peer : sign(victim).peers)
    if (peer != victim && absent(sign(victim), peer)) result.push_back(peer);
  return result;
}

// A stuck rank that waits for one of these directly; else any stuck one; else -1.
int Court::victim_of(const Ranks& culprits) const {
  for (const int rank : stuck_)
    for (const int culprit : culprits)
      if (needs(sign(rank), culprit)) return rank;
  return stuck_.empty() ? -1 : stuck_.front();
}

std::string Court::opening(int victim) const {
  const Sign& stuck = sign(victim);
  if (!late(stuck)) return fmt::format("{} was broken off", stuck.call);
  return fmt::format("no answer for {:.0f} s: {}", std::max(stuck.seconds, 1.0), stuck.call);
}

std::string Court::waiting_text() const {
  if (stuck_.empty()) return "";
  return fmt::format("; {} {} in {}", ranks_text(stuck_), stuck_.size() == 1 ? "was" : "were",
                     sign(stuck_.front()).call);
}

std::string Court::life_of(int rank) const {
  if (sign(rank).time == 0) return "no sign of life ever";
  return fmt::format("no sign of life for {:.0f} s", std::max(found_.now - sign(rank).time, 1.0));
}

std::string Court::about_gone() const {
  const int victim = victim_of(gone_);
  std::vector<std::string> parts;
  const bool absent = victim >= 0 && late(sign(victim));
  for (const int rank : gone_)
    parts.push_back(fmt::format("rank {} {}; it last did: {} ({})", rank,
                                absent ? "did not arrive" : "is gone", last_of(sign(rank)),
                                life_of(rank)));
  for (const int rank : left_)
    parts.push_back(fmt::format("rank {} left: {}", rank, sign(rank).reason));
  const std::string who = fmt::format("{}", fmt::join(parts, "; "));
  return victim < 0 ? who : fmt::format("{}: {}", opening(victim), who);
}

std::string Court::about_left() const {
  if (stuck_.empty() && busy_.empty()) return "";
  std::vector<std::string> parts;
  for (const int rank : left_)
    parts.push_back(fmt::format("rank {} left: {}", rank, sign(rank).reason));
  return fmt::format("{}{}", fmt::join(parts, "; "), waiting_text());
}

Ranks Court::ended_early() const {
  Ranks early;
  for (const int rank : done_)
    if (std::any_of(stuck_.begin(), stuck_.end(), [&](int stuck) {
          return needs(sign(stuck), rank) && absent(sign(stuck), rank);
        }))
      early.push_back(rank);
  return early;
}

std::string Court::about_early(const Ranks& early) const {
  std::vector<std::string> parts;
  for (const int rank : early)
    parts.push_back(
        fmt::format("rank {} ended too early; it last did: {}", rank, last_of(sign(rank))));
  return fmt::format("{}{}", fmt::join(parts, "; "), waiting_text());
}

int Court::told_failure() const {
  for (const int rank : stuck_)
    if (sign(rank).doing == Doing::failed && sign(rank).told) return rank;
  return -1;
}

// Ranks that stand in calls of one number in one group which are not the same call.
std::string Court::about_other_calls() const {
  for (const int rank : stuck_) {
    std::map<std::string_view, Ranks> camps;
    for (const int other : stuck_)
      if (sign(rank).number >= 0 && sign(other).group == sign(rank).group &&
          sign(other).number == sign(rank).number)
        camps[essence(sign(other))].push_back(other);
    if (camps.size() < 2) continue;
    // What most ranks do is taken for right; of two equal camps, what the lowest rank does.
    auto right = camps.find(essence(sign(rank)));
    for (auto camp = camps.begin(); camp != camps.end(); ++camp)
      if (camp->second.size() > right->second.size()) right = camp;
    const int victim = right->second.front();
    std::vector<std::string> parts;
    for (const auto& [text, ranks] : camps)
      if (text != right->first)
        parts.push_back(
            fmt::format("{} made another call: {}", ranks_text(ranks), sign(ranks.front()).call));
    return fmt::format("{}: {}", opening(victim), fmt::join(parts, "; "));
  }
  return "";
}

std::string Court::about_progress() const {
  const int rank = found_.alarm.rank;
  return fmt::format("no progress for {:.0f} s on rank {}; it last did: {}{}",
                     std::max(found_.alarm.seconds, 1.0), rank, last_of(sign(rank)),
                     waiting_text());
}

std::string Court::state_of(int rank) const {
  if (sign(rank).doing == Doing::busy) return fmt::format("it last did: {}", last_of(sign(rank)));
  return fmt::format("it is in {}", sign(rank).call);
}

// Of ranks that wait for each other, the end of the chain is to blame: one that waits for nobody.
// In a circle, whoever has not come.
std::pair<int, Ranks> Court::blamed() const {
  for (const bool only_busy : {true, false})
    for (const int rank : stuck_) {
      Ranks culprits = absent_from(rank);
      if (only_busy)
        std::erase_if(culprits, [&](int other) { return sign(other).doing != Doing::busy; });
      if (!culprits.empty()) return {rank, std::move(culprits)};
    }
  return {stuck_.empty() ? -1 : stuck_.front(), {}};
}

std::string Court::about_absent() const {
  const auto [victim, culprits] = blamed();
  if (victim < 0)
    return fmt::format("rank {} raised an alarm that no rank confirms", found_.alarm.rank);
  if (!late(sign(victim)) && busy_.empty())
    return fmt::format(
        "{} failed on {}: {}; all ranks are alive, so the network between them "
        "broke a connection",
        sign(victim).call, ranks_text({victim}), sign(victim).reason);
  if (culprits.empty())
    return fmt::format(
        "{}: all of its ranks have come; the network does not carry it, or the "
        "timeout is too short",
        opening(victim));
  std::vector<std::string> parts;
  for (const int rank : culprits)
    parts.push_back(fmt::format("rank {} did not arrive; {}", rank, state_of(rank)));
  return fmt::format("{}: {}", opening(victim), fmt::join(parts, "; "));
}

}  // namespace

std::string verdict_of(const Findings& found) { return Court(found).sentence(); }

std::string verdict_without_store(const Alarm& alarm, const Sign& mine, const std::string& whose) {
  std::string opening = fmt::format("rank {} left: {}", alarm.rank, mine.reason);
  if (mine.doing == Doing::failed && mine.seconds < 0.9 * alarm.seconds) {
    opening = fmt::format("{} was broken off", mine.call);
  } else if (alarm.cause == Cause::no_progress) {
    opening = fmt::format("no progress for {:.0f} s on rank {}; it last did: {}", alarm.seconds,
                          alarm.rank, last_of(mine));
  } else if (!mine.call.empty()) {
    opening = fmt::format("no answer for {:.0f} s: {}", std::max(mine.seconds, 1.0), mine.call);
  }
  return fmt::format("{}: {}", opening, whose);
}

}  // namespace braid::comm
