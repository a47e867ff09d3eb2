// SPDX-License-Identifier: BSD-3-Clause
// The life of one rank, part by part: its model is built, a first step makes the optimizer's
// states, a step like all later ones, a checkpoint, an evaluation. Dry or real, alone or one of
// many.
//
//   train::Life life = train::live(options, {.device = {c10::kCUDA, 0}, .world = 64, .rank = 9});
//   std::cout << life.step.peak.bytes << life.log.flops() << life.messages.size();
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "braid/comm/counting.h"
#include "braid/memory/ledger.h"
#include "braid/memory/operator_log.h"
#include "braid/train/measure.h"
#include "braid/train/options.h"

namespace braid::train {

struct LifeRegion {
  std::string name;             // forward, backward, optimizer, communication
  int64_t from = 0, until = 0;  // operators of the step
};

struct LifeGroup {
  std::string name;
  std::shared_ptr<const std::vector<int>> ranks;  // of the world
  bool collectives = false;                       // else messages alone
  int64_t peers = 0;                              // that messages go to or come from
};

struct Life {
  Phase build, first_step, step, checkpoint, evaluation;
  int64_t staged = 0;       // bytes on the host that a checkpoint is copied into
  memory::OperatorLog log;  // of `step`
  std::vector<comm::TrafficEntry> messages;
  std::vector<LifeRegion> regions;
  std::vector<LifeGroup> groups;  // that carried tensors of the device, in any part
  int64_t backward_began = 0;     // of the first step, nanoseconds of its history
};

struct LifeOptions {
  bool trace = true;       // log, messages and regions of the step
  bool evaluation = true;  // else that part is empty
  double expert_load = 1;  // dry: rows that this rank's experts get, over an even spread
  // After each part (build, first step, step, checkpoint, evaluation): its history is in the
  // ledger. What is known so far comes with it.
  std::function<void(std::string_view part, const memory::Ledger& ledger, const Life& life)> after =
      {};
};

// Shapes of what a rank holds and works on: ranks of a stage where they are the same take the same
// memory and time.
std::vector<std::vector<int64_t>> shapes_of_rank(const RunOptions& options, MeasureOptions how);

Life live(const RunOptions& options, MeasureOptions how, const LifeOptions& wanted = {});

}  // namespace braid::train
