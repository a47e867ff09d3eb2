// SPDX-License-Identifier: BSD-3-Clause
// What a plan said about a run, read from plan.json in its folder, and the sentence when the run
// leaves it.
//
//   train::PlanWatch watch(train::read_expected(dir), {.device = "cuda", .world = 8});
//   for (double seconds : steps) watch.step(seconds);
//   if (watch.due()) for (const std::string& line : watch.look(bytes)) log.warning(line);
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "braid/memory/ledger.h"

namespace braid::train {

// Of one kind of rank: the most that its tensors take.
struct ExpectedRank {
  std::string name;
  int64_t bytes = 0;
  std::string moment;  // when: first step, step, evaluation, checkpoint
};

struct Expected {
  std::string device;  // cuda or cpu
  std::string layout;  // in words, for the sentence
  int64_t world = 1;
  double step_seconds = 0;          // 0: not said
  std::vector<ExpectedRank> ranks;  // by stage: of the first one first
};

// plan.json of a folder; empty: there is none. DataError for one that cannot be read.
std::optional<Expected> read_expected(const std::filesystem::path& dir);

// On a CPU nothing but a ledger tells what tensors take: one for a run with a plan of this device,
// null for others.
std::shared_ptr<memory::Ledger> ledger_for_plan(const std::filesystem::path& dir,
                                                c10::Device device);

// Where a rank of the run stands.
struct PlanPlace {
  std::string device = "cpu";
  int64_t world = 1;
  int64_t stage = 0, stages = 1;  // of the pipeline axis
  bool first = true;              // the rank that speaks of time
};

class PlanWatch {
 public:
  PlanWatch() = default;  // expects nothing
  PlanWatch(std::optional<Expected> expected, PlanPlace place);

  // Another device or number of ranks than planned: then nothing is compared, and this says so.
  std::string refusal() const;
  bool watches() const { return watches_; }  // until look() has spoken
  void step(double seconds);
  bool due() const;  // enough steps were seen, and look() was not called
  // One sentence a number that is off by more than 5 %. `bytes`: peak of this rank so far, 0: not
  // known. Once; later calls give nothing.
  std::vector<std::string> look(int64_t bytes);

 private:
  std::string look_at_time() const;
  std::string look_at_bytes(int64_t bytes) const;

  std::optional<Expected> expected_;
  PlanPlace place_;
  std::vector<double> seconds_;
  int64_t seen_ = 0;
  bool watches_ = false;
};

}  // namespace braid::train
