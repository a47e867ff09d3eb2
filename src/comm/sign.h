// SPDX-License-Identifier: BSD-3-Clause
// What a rank tells the others of itself, and what all of that together says about a hang.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace braid::comm {

enum class Doing : uint8_t { busy, waiting, failed, left, done };

struct Sign {
  Doing doing = Doing::busy;
  double time = 0;          // when it was given: seconds of the wall clock, which all hosts share
  std::string what = {};    // as the program says: "step 17, backward"
  std::string last = {};    // as the groups say: "has finished all_reduce ..., 0.1 s ago"
  std::string reason = {};  // of the one who left, or of the call that failed
  bool told = false;        // the reason is a sentence that names the cause
  // The call that it stands in, or that failed.
  std::string call = {};
  std::string group = {};       // its key
  int64_t number = -1;          // among the collectives of the group; -1: a message or a split
  std::vector<int> peers = {};  // ranks of the world that the call needs
  double seconds = 0;           // waited so far
  std::map<std::string, int64_t> counts = {};  // collectives begun, by key of the group
};
std::string to_text(const Sign& sign);
std::optional<Sign> sign_of(const std::string& text);  // nothing: the text is no sign

enum class Cause : uint8_t { timeout, failed, left, early, no_progress };

struct Alarm {
  int rank = 0;  // who raised it
  Cause cause = Cause::timeout;
  double seconds = 0;  // the timeout that was over
};
std::string to_text(const Alarm& alarm);
// Empty if the text is not an alarm of a world of `ranks` ranks.
std::optional<Alarm> alarm_of(const std::string& text, int ranks);

// A text of another process as it may stand on a terminal: control characters as question marks.
std::string printable(std::string text);

// What was found out after an alarm.
struct Findings {
  Alarm alarm = {};
  double now = 0;
  std::vector<Sign> signs = {};     // of each rank: its answer, or the last sign before
  std::vector<bool> answered = {};  // since the alarm
};
// The sentence; "" if all ranks left by themselves, so that each has said why.
std::string verdict_of(const Findings& found);
// The same where the store is lost and nobody can be asked.
std::string verdict_without_store(const Alarm& alarm, const Sign& mine, const std::string& whose);

}  // namespace braid::comm
