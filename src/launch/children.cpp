// SPDX-License-Identifier: BSD-3-Clause
#include "launch/children.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>

#include "braid/core/error.h"
#include "braid/core/fs.h"

namespace braid::launch {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

// Between fork and exec only calls that are safe in a signal handler.
[[noreturn]] void become(char* const* command, char* const* variables, int log,
                         const ChildProcess& process) {
  ::setpgid(0, 0);
  if (process.socket >= 0) ::fcntl(process.socket, F_SETFD, 0);  // the others stay closed to it
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, 0);
  if (log >= 0 && (::dup2(log, 1) < 0 || ::dup2(log, 2) < 0)) ::_exit(126);
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &process.signals, nullptr);
  ::execve(command[0], command, variables);
  ::_exit(127);
}

}  // namespace

bool Child::failed() const {
  const bool left =
      code == static_cast<int>(Exit::ok) || code == static_cast<int>(Exit::interrupted);
  return state == State::ended && !asked && !left;
}

void need_open_files(int ranks) {
  constexpr rlim_t of_a_process = 32,
                   of_a_peer = 4;  // sockets, files and pipes, with some to spare
  const rlim_t need = of_a_process + of_a_peer * static_cast<rlim_t>(ranks);
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(need, limit.rlim_max);
  if (limit.rlim_cur == need && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  throw StorageError(
      {.what = fmt::format("{} rank{} of one host with at most {} open files per process", ranks,
                           ranks == 1 ? "" : "s", before),
       .why = fmt::format("each process needs up to {} for sockets and files, and the hard limit "
                          "(ulimit -H -n) is {}",
                          need, limit.rlim_max),
       .fix = fmt::format("allow more open files: ulimit -n {}", std::max<rlim_t>(need, 1024))});
}

pid_t start_process(const ChildProcess& process) {
  // Opened here, where a failure can be told.
  const Descriptor log = process.log.empty()
                             ? Descriptor()
                             : Descriptor(::open(process.log.c_str(),
                                                 O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644));
  if (!process.log.empty() && log.get() < 0) throw_storage("open", process.log, errno);
  const std::vector<char*> command = pointers_to(process.command);
  const std::vector<char*> variables = pointers_to(process.variables);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it ended before we could ask to be told
    become(command.data(), variables.data(), log.get(), process);
  }
  if (child < 0)
    throw InternalError({.what = fmt::format("cannot start a process: {}", std::strerror(errno)),
                         .why = "each rank is a process",
                         .fix = "look at ulimit -u and the free memory"});
  ::setpgid(child, child);  // also here: either may come first
  return child;
}

bool look_at(Child& child) {
  if (child.state == Child::State::ended) return false;
  siginfo_t news = {};
  const int kinds = WEXITED | WSTOPPED | WCONTINUED | WNOHANG;
  const bool answered = ::waitid(P_PID, static_cast<id_t>(child.pid), &news, kinds) == 0;
  if (answered ? news.si_pid == 0 : errno != ECHILD) return false;
  if (!answered) {  // somebody else has waited for it: how it ended is not known
    news.si_code = CLD_EXITED;
    news.si_status = static_cast<int>(Exit::internal);
  }
  child.since = std::chrono::steady_clock::now();
  child.signal = news.si_code == CLD_EXITED ? 0 : news.si_status;
  child.state = Child::State::ended;
  if (news.si_code == CLD_EXITED) child.code = news.si_status;
  if (news.si_code == CLD_STOPPED) child.state = Child::State::stopped;
  if (news.si_code == CLD_CONTINUED) child.state = Child::State::running;
  return true;
}

void send(const Child& child, int signal) {
  if (child.state != Child::State::ended) ::kill(child.pid, signal);
}

void kill_group(const Child& child) {
  // Once it has been waited for, its number is its group's only while others of the group live.
  if (::kill(-child.pid, SIGKILL) != 0) send(child, SIGKILL);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

std::string last_lines(const Child& child, int count) {
  if (child.log.empty()) return "";
  std::ifstream in(child.log);
  in.seekg(0, std::ios::end);
  const int64_t tail = 8192;
  in.seekg(std::max(child.log_start, static_cast<int64_t>(in.tellg()) - tail));
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
    if (lines.size() > static_cast<size_t>(count)) lines.pop_front();
  }
  std::string text = fmt::format(
      "\n  {} {}", lines.empty() ? "it wrote nothing into" : "the end of", child.log.string());
  for (const std::string& line : lines) text += "\n    " + line;
  return text;
}

}  // namespace braid::launch
