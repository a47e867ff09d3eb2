// SPDX-License-Identifier: BSD-3-Clause
// Starts the ranks of one host as processes and watches them until the last has ended.
//
//   return launch::spawn({.ranks = 4, .command = launch::own_command(), .log_dir = "runs/a/logs"});
//
// Rank 0 has the terminal; the others write to log_dir/rank-<r>.log. The store at which they meet
// is served here, without a port, so it outlives every rank. Ctrl-C, TERM, HUP and USR1 are passed
// on, a second Ctrl-C kills. A rank that fails is named and the others are ended; none is left
// behind, not even when this process is killed.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "braid/launch/environment.h"
#include "braid/launch/options.h"

namespace braid::launch {

struct SpawnOptions {
  int ranks = 1;                          // on this host
  std::vector<std::string> command = {};  // path of the program and its arguments
  std::filesystem::path log_dir = "logs";
  Environment here = {};
  Options launch = {};
  double talk_seconds = 4;    // for the others to find out and say what they lost
  double grace_seconds = 5;   // between asking a rank to end and killing it
  double early_seconds = 10;  // that ranks may run on after one has left
  std::function<void(const std::string& line)> say = {};  // empty: to stderr
};

// The exit code for this process: that of the rank that failed, 5 if it was killed by a signal or
// left while the others went on, 75 if all stopped after saving, 130 after a second Ctrl-C, else 0.
int spawn(const SpawnOptions& options);

// This process's program and arguments, without --ranks and its value.
std::vector<std::string> own_command();

}  // namespace braid::launch
