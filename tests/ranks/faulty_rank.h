// SPDX-License-Identifier: BSD-3-Clause
// A small run on three ranks as processes, one of which has an accident where a test says. What
// the terminal showed, when, and with which exit code it ended; then it can be resumed.
//
//   test::FaultyRun run;
//   const test::Ended end = run.start({.kind = "kill", .rank = 1, .at = "step 12/forward"});
//   EXPECT_EQ(end.code, 5);
//   run.resume();
//
// The body of a rank, with its accidents, is in faults_rank_test.cpp.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "braid/checkpoint/store.h"
#include "launch/processes.h"
#include "support/command.h"
#include "support/expect.h"

namespace braid::test {

constexpr double fault_timeout = 3;  // launch.timeout
constexpr double fault_limit = fault_timeout + 5;

struct Fault {
  std::string kind = {};  // kill, stop, throw, exit, return, hang, shape, ...; empty: none
  int rank = 1;
  std::string at = {};  // "step 12", "step 12/forward", "checkpoint of step 10"
};

struct FaultySetup {
  int zero = 0;
  int steps = 20;
  std::string dir = {};                     // of the run; empty: in a folder of its own
  std::vector<std::string> variables = {};  // more of them
};

// How a job ended, in seconds from the accident.
struct Ended {
  int code = -1;
  std::string terminal = {};
  double seen = -1;  // the first line about it
  double over = -1;  // nobody was left
};

inline double wall_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A job under way: the launcher of braid with three ranks, or one rank that somebody else starts.
class FaultyJob {
 public:
  using Words = std::vector<std::string>;
  // `before`: words of a program that runs the rest.
  FaultyJob(const std::string& dir, const std::string& test, const Words& variables,
            const Words& before = {})
      : dir_(dir) {
    Words words = before;
    words.insert(words.end(), {"/usr/bin/env", "FAULT_DIR=" + dir, "OMP_NUM_THREADS=1"});
    words.insert(words.end(), variables.begin(), variables.end());
    const Words rank = again(test);
    words.insert(words.end(), rank.begin(), rank.end());
    words.push_back(dir);  // the mark by which its processes are found
    process_ = std::make_unique<Command>(std::move(words));
  }

  void send(int signal) const { process_->send(signal); }
  std::string terminal() const { return process_->err(); }
  bool saw(const std::string& file, const std::string& word) {
    return process_->saw(std::filesystem::path(dir_) / file, word);
  }

  Ended wait(const std::string& sign = "braid: ") {
    std::atomic<double> seen = 0, over = 0;
    std::thread eye([&] {
      while (seen == 0 && over == 0) {
        if (process_->err().find(sign) != std::string::npos) seen = wall_now();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    const Outcome done = process_->wait();
    over = wall_now();
    eye.join();
    std::ifstream in(std::filesystem::path(dir_) / "fault");
    double fault = 0;
    in >> fault;
    if (seen == 0 && done.err.find(sign) != std::string::npos) seen = over.load();
    return {.code = done.code,
            .terminal = done.err,
            .seen = seen == 0 || fault == 0 ? -1 : seen - fault,
            .over = fault == 0 ? -1 : over - fault};
  }

 private:
  std::string dir_;
  std::unique_ptr<Command> process_;
};

class FaultyRun {
 public:
  explicit FaultyRun(FaultySetup setup = {}) : setup_(std::move(setup)) {
    if (setup_.dir.empty()) setup_.dir = (temp_ / "run").string();
    std::ofstream(temp_ / "run.yaml")
        << R"(
seed: 3
run: {dir: )" + setup_.dir +
               R"(}
model: {name: mlp, inputs: 2, hidden: [64, 48], outputs: 2, dropout: 0.2}
data: {kind: spiral, points: 200, workers: 0}
train: {steps: )" +
               std::to_string(setup_.steps) +
               R"(, global_batch: 13, loss: cross_entropy, device: cpu, threads: 1, zero: )" +
               std::to_string(setup_.zero) + R"(}
optimizer: {name: adam, lr: 1e-2}
valid: {every: 1000000}
checkpoint: {every: 5, keep: 99}
report: {to: [jsonl]}
launch: {timeout: )" +
               std::to_string(static_cast<int>(fault_timeout)) + "s}\n";
  }

  int zero() const { return setup_.zero; }
  std::string dir() const { return temp_.path().string(); }
  std::filesystem::path run_dir() const { return setup_.dir; }
  std::filesystem::path checkpoint(int step) const {
    std::string number = std::to_string(step);
    return run_dir() / "checkpoints" / ("step-" + std::string(8 - number.size(), '0') + number);
  }

  // The same variables for a launcher of all ranks and for a rank alone.
  std::vector<std::string> variables(const Fault& fault, bool resume) const {
    std::vector<std::string> all = setup_.variables;
    all.insert(all.end(), {"FAULT_KIND=" + fault.kind, "FAULT_RANK=" + std::to_string(fault.rank),
                           "FAULT_AT=" + fault.at, resume ? "FAULT_RESUME=1" : "FAULT_RESUME="});
    return all;
  }
  FaultyJob begin(const Fault& fault, bool resume = false) {
    std::filesystem::remove(temp_ / "fault");
    return FaultyJob(dir(), "FaultyRank.DISABLED_Launcher", variables(fault, resume));
  }
  Ended start(const Fault& fault = {}, bool resume = false) {
    return ended(begin(fault, resume).wait());
  }
  // Goes on without an accident, or to the next one.
  Ended resume(const Fault& fault = {}) { return start(fault, /*resume=*/true); }

  Ended ended(Ended end) const {
    EXPECT_TRUE(eventually([&] { return processes_with(dir()).empty(); })) << "left behind";
    return end;
  }
  // Where the last resumed run began; -1: nowhere.
  int resumed_at() const {
    const std::string log = text_of(run_dir() / "out.log"), mark = " at step ";
    const size_t line = log.rfind("resumed from ");
    return line == std::string::npos ? -1 : std::stoi(log.substr(log.find(mark, line) + 9));
  }
  // What the rank that has the accident and the test tell each other.
  void write(const std::string& file) const { std::ofstream(temp_ / file) << "1"; }
  State state(int step) const { return checkpoint::load(checkpoint(step)).state; }

 private:
  TempDir temp_;
  FaultySetup setup_;
};

// Weights and optimizer are the same, bit by bit.
inline void expect_same_bits(const State& mine, const State& unbroken) {
  ASSERT_EQ(mine.tensors.size(), unbroken.tensors.size());
  for (const auto& [name, tensor] : mine.tensors)
    EXPECT_TRUE(tensor.equal(unbroken.tensors.at(name))) << name;
}

// The last state of a run that nobody disturbed.
inline const State& unbroken_state(int zero) {
  const auto run_alone = [](int stage) {
    FaultyRun run({.zero = stage});
    const Ended end = run.start();
    EXPECT_EQ(end.code, 0) << end.terminal;
    return run.state(20);
  };
  if (zero == 3) {
    static const State shared_out = run_alone(3);
    return shared_out;
  }
  static const State replicated = run_alone(0);
  return replicated;
}

// The run goes on from `saved` without an accident and ends as if there had been none.
inline void expect_goes_on(FaultyRun& run, int saved) {
  const Ended more = run.resume();
  EXPECT_EQ(more.code, 0) << more.terminal;
  EXPECT_EQ(run.resumed_at(), saved) << more.terminal;
  if (more.code == 0) expect_same_bits(run.state(20), unbroken_state(run.zero()));
}

// Everybody has ended in time, and the terminal says so. Prints what docs/faults.md tells.
inline void expect_end(const Ended& end, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(end.code, code) << end.terminal;
  EXPECT_LT(end.over, fault_limit);
  for (const std::string& part : parts) EXPECT_TRUE(contains(end.terminal, part));
  std::printf("[  faults  ] seen after %.1f s, over after %.1f s, exit code %d: %s\n", end.seen,
              end.over, end.code, parts.empty() ? "" : parts.front().c_str());
  if (std::getenv("FAULT_SHOW") != nullptr) std::printf("%s\n", end.terminal.c_str());
}

// Most of the time the ranks of a job wait.
inline void side_by_side(const std::vector<std::function<void()>>& bodies) {
  std::vector<std::thread> threads;
  threads.reserve(bodies.size());
  for (const auto& body : bodies) threads.emplace_back(body);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace braid::test
