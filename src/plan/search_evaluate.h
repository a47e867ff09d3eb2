// SPDX-License-Identifier: BSD-3-Clause
// A choice, run dry and simulated: does it fit, how long does its step take, and why it lost.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "plan/space.h"

namespace braid::plan {

class Evaluator {
 public:
  Evaluator(const Request& request, const Base& base) : request_(request), base_(base) {}

  Plan plan(const Choice& choice, bool timeline = false);
  // A config as it is, on so many GPUs.
  Plan plan(const train::RunOptions& options, int64_t gpus, bool timeline = false);
  // Memory alone: no time. Much sooner.
  Plan memory(const train::RunOptions& options, int64_t gpus);
  int64_t dry_runs() const { return dry_runs_; }

 private:
  LayoutRun run(const train::RunOptions& options, int64_t gpus, bool trace);
  const CostModel& costs(const train::RunOptions& options, int64_t gpus);

  const Request& request_;
  const Base& base_;
  std::map<std::pair<bool, bool>, CostModel> costs_;  // with and without tf32, and a graph
  int64_t dry_runs_ = 0;
};

Choice resolved_choice(const train::RunOptions& options, int64_t gpus);  // what a config comes to

std::string size_text(int64_t bytes);  // 43.1 GiB
// "43.1 GiB of 40.0 GiB (by 3.1 GiB), most of it activations"
std::string miss_text(const Plan& plan, int64_t room);
// Why a plan lost against the fastest one that fits (null: none does).
std::string reason_of(const Plan& plan, const Plan* winner, int64_t room);
// What would make the nearest miss fit: a sentence.
std::string help_text(const Request& request, const Base& base, const Plan& nearest,
                      Evaluator& evaluator);

}  // namespace braid::plan
