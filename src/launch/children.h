// SPDX-License-Identifier: BSD-3-Clause
// The ranks of one host as processes: started, watched, ended.
#pragma once
#include <sys/types.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "launch/address.h"

namespace braid::launch {

struct Child {
  enum class State { running, stopped, ended };
  int rank = 0;
  pid_t pid = -1;
  State state = State::running;
  int code = -1;                   // of its exit; -1 if a signal ended it
  int signal = 0;                  // that ended it or stopped it
  bool asked = false;              // to end, by us: what it says then is no failure
  Instant since = {};              // of the state
  std::filesystem::path log = {};  // empty: it has the terminal
  int64_t log_start = 0;           // where this run's lines begin

  bool failed() const;  // by itself
};

struct ChildProcess {
  std::vector<std::string> command, variables;
  std::string log;   // empty: the terminal
  sigset_t signals;  // blocked ones of the caller, which the child is to have
  int socket = -1;   // that the child is to have open, under the same number; -1: none
};

// Raises this process's limit of open files, which its children inherit, as far as that many ranks
// need and the system allows. Throws StorageError: with fewer, libraries abort or wait for ever.
void need_open_files(int ranks);

// Forks and executes. The child gets a process group of its own, ends when this process does, and
// reads nothing from the terminal.
pid_t start_process(const ChildProcess& process);

// Takes note of what became of it; true if something changed.
bool look_at(Child& child);
void send(const Child& child, int signal);  // to the process
void kill_group(const Child& child);        // and all that it started

std::string signal_name(int signal);                        // SIGKILL
std::string last_lines(const Child& child, int count = 8);  // of its log, indented

}  // namespace braid::launch
