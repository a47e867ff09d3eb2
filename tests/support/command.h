// SPDX-License-Identifier: BSD-3-Clause
// Runs a program as a user would and keeps what it says.
//
//   test::Outcome done = test::run_command({BRAID_COMMAND, "doctor", "--json"});
#pragma once
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "support/files.h"

namespace braid::test {

struct Outcome {
  int code = -1;  // 128 + signal if one ended it
  std::string out, err;
};

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Command {
 public:
  // `uid`: run as that user, 0 leaves it.
  explicit Command(std::vector<std::string> words, unsigned uid = 0) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string out = (dir_ / "out").string(), err = (dir_ / "err").string();
    child_ = fork();
    if (child_ != 0) return;
    dup2(open(out.c_str(), O_CREAT | O_WRONLY, 0600), 1);
    dup2(open(err.c_str(), O_CREAT | O_WRONLY, 0600), 2);
    if (uid != 0 && (setgroups(0, nullptr) != 0 || setuid(uid) != 0)) _exit(126);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  ~Command() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t process() const { return child_; }
  void send(int signal) const { kill(child_, signal); }
  std::string err() const { return text_of(dir_ / "err"); }

  // Waits until `file` holds `word`, the program ends, or 30 s are over.
  bool saw(const std::filesystem::path& file, const std::string& word) {
    using namespace std::chrono_literals;
    for (int i = 0; i < 6000; ++i) {
      if (text_of(file).find(word) != std::string::npos) return true;
      siginfo_t ended = {};
      waitid(P_PID, static_cast<id_t>(child_), &ended, WEXITED | WNOHANG | WNOWAIT);
      if (ended.si_pid != 0) return text_of(file).find(word) != std::string::npos;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }

  Outcome wait() {
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .out = text_of(dir_ / "out"),
            .err = text_of(dir_ / "err")};
  }

 private:
  TempDir dir_;
  pid_t child_ = 0;
};

inline Outcome run_command(std::vector<std::string> words) {
  return Command(std::move(words)).wait();
}

}  // namespace braid::test
