// SPDX-License-Identifier: BSD-3-Clause
// This test program started again as something else: a rank, or a launcher of ranks.
//
//   const auto words = test::again("Rank.DISABLED_Meets");   // the command that runs that test
//   alone
#pragma once
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace braid::test {

inline std::vector<std::string> again(const std::string& test) {
  return {std::filesystem::read_symlink("/proc/self/exe").string(), "--gtest_filter=" + test,
          "--gtest_also_run_disabled_tests", "--gtest_brief=1"};
}

// Processes whose command line holds `mark`, but for zombies and this one.
inline std::vector<pid_t> processes_with(const std::string& mark) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(in), {}};
    if (line.find(mark) != std::string::npos && std::stoi(name) != getpid())
      found.push_back(std::stoi(name));
  }
  return found;
}

// Waits until `done` is true; false after 20 s.
template <class Done>
bool eventually(Done done) {
  for (int i = 0; i < 4000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace braid::test
