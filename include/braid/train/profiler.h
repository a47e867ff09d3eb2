// SPDX-License-Identifier: BSD-3-Clause
// Where time and memory of a few steps go: a trace of every rank, one of all ranks, the memory of
// the steps, a summary. The trainer has one; a loop of your own may, too.
//
//   train::Profiler profiler({.on = true}, {.run_dir = "runs/a"});
//   for (int64_t n = 0; n < 20; ++n) { profiler.begin_step(n); step(); profiler.end_step(); }
//
// With wait 1, warm-up 3 and 5 steps the trace has ProfilerStep#4 to ProfilerStep#8.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "braid/comm/group.h"
#include "braid/memory/ledger.h"
#include "braid/train/options.h"

namespace braid::train {

struct ProfilerPlace {
  std::filesystem::path run_dir;
  comm::Group control = {};  // all ranks of the run
  c10::Device device = c10::kCPU;
  bool pipelined = false;                 // waiting for a message is a bubble
  memory::Ledger* ledger = nullptr;       // that counts the run already; null: one of its own
  std::function<void()> mark_alive = {};  // calls mark() for what is alive: weights, states, ...
  std::function<void(const std::string&)> say = {};  // a line for the log
};

class Profiler {
 public:
  Profiler(ProfileOptions options, ProfilerPlace place);
  ~Profiler();  // a profile under way is dropped
  Profiler(Profiler&&) noexcept;
  Profiler& operator=(Profiler&&) noexcept;

  // All ranks call these alike. `step`: how many are done.
  void begin_step(int64_t step);  // before the data of the step are asked for
  bool end_step();                // true: files were written, which took its time
  void finish();                  // the run ends: what was profiled so far is written

  // Steps that somebody asked this process to profile since the last call, by SIGUSR2 or
  // <run_dir>/profile.request; 0: nobody did.
  int64_t wish();
  void request(int64_t steps);  // profiles so many from the next step on, on all ranks

  bool measures() const;              // this step runs under instruments
  bool done() const;                  // nothing is under way or to come
  std::string summary() const;        // of the last profile, as in summary.json; rank 0
  std::filesystem::path dir() const;  // where it lies

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// While one lives, SIGUSR2 is noted for Profiler::wish() instead of ending the process.
class ProfileSignal {
 public:
  ProfileSignal();
  ~ProfileSignal();
  ProfileSignal(const ProfileSignal&) = delete;
  ProfileSignal& operator=(const ProfileSignal&) = delete;
};

}  // namespace braid::train
