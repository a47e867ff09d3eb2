// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "support/command.h"
#include "support/files.h"
#include "support/ranks_crew.h"

namespace braid::test {
namespace {

struct Place {
  int call = 0;  // which on_processes of the test it is
  int count = 0;
  std::string store = {};
};

std::string current_test() {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info->test_suite_name()) + "." + info->name();
}

int next_call() {
  static std::string test;
  static int call = 0;
  if (test != current_test()) call = 0;
  test = current_test();
  return call++;
}

int number_of(const char* variable) { return std::atoi(std::getenv(variable)); }

std::vector<std::string> environment_of(const Place& place, int rank) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!std::string_view(*entry).starts_with("GTEST_")) result.emplace_back(*entry);
  result.push_back("BRAID_TEST_RANK=" + std::to_string(rank));
  result.push_back("BRAID_TEST_CALL=" + std::to_string(place.call));
  result.push_back("BRAID_TEST_STORE=" + place.store);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

pid_t start_rank(const Place& place, int rank, const std::string& output) {
  std::vector<std::string> words = {"/proc/self/exe", "--gtest_filter=" + current_test(),
                                    "--gtest_also_run_disabled_tests"};
  words[0] = std::filesystem::read_symlink(words[0]).string();
  std::vector<std::string> environment = environment_of(place, rank);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t child = -1;
  const int failed = posix_spawn(&child, words[0].c_str(), &files, nullptr, pointers(words).data(),
                                 pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  return failed == 0 ? child : -1;
}

// Code of a child that has ended, 128 + signal if one ended it; -1 while it runs.
int code_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, WNOHANG) == 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Codes of all; those that run longer than the limit are ended by a signal.
std::vector<int> wait_for(const std::vector<pid_t>& children, double limit_seconds) {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_seconds);
  std::vector<int> codes(children.size(), -1);
  size_t running = children.size();
  while (running > 0) {
    for (size_t i = 0; i < children.size(); ++i)
      if (codes[i] < 0 && (codes[i] = code_of(children[i])) >= 0) --running;
    if (running > 0 && std::chrono::steady_clock::now() > end)
      for (size_t i = 0; i < children.size(); ++i)
        if (codes[i] < 0) kill(children[i], SIGKILL);
    std::this_thread::sleep_for(2ms);
  }
  return codes;
}

// In a process of on_processes: this is the whole test. Failures are printed, not given to gtest,
// since the test may be one that catches those of this call.
[[noreturn]] void be_a_rank(int count, const RankBody& body, const RankOptions& options) {
  const int rank = number_of("BRAID_TEST_RANK");
  bool failed = false;
  {
    const GeneratorWatch watch;
    Crew crew(count, comm::Store::file(std::getenv("BRAID_TEST_STORE"), count), options);
    for (const testing::TestPartResult& result : crew.run({rank}, body)) {
      failed = failed || result.failed();
      std::cerr << result;
    }
    if (const std::string complaint = watch.complaint(); !complaint.empty()) {
      failed = true;
      std::cerr << complaint << "\n";
    }
  }
  std::fflush(nullptr);
  std::_Exit(failed ? 1 : 0);
}

}  // namespace

void run_processes(int count, const RankBody& body, const RankOptions& options) {
  const int call = next_call();
  if (std::getenv("BRAID_TEST_RANK") != nullptr) {
    if (call == number_of("BRAID_TEST_CALL")) be_a_rank(count, body, options);
    return;
  }
  const TempDir dir;
  const Place place{.call = call, .count = count, .store = (dir / "store").string()};
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank)
    children.push_back(start_rank(place, rank, (dir / std::to_string(rank)).string()));
  const std::vector<int> codes = wait_for(children, options.limit_seconds + 5);
  for (int rank = 0; rank < count; ++rank) {
    const int code = codes[static_cast<size_t>(rank)];
    if (code != 0)
      ADD_FAILURE() << "process of rank " << rank << " of " << count << " ended with code " << code
                    << " and said:\n"
                    << text_of(dir / std::to_string(rank));
  }
}

}  // namespace braid::test
