// SPDX-License-Identifier: BSD-3-Clause
// What each rank of a pipeline does, as a list of actions. Schedules are data: made here or read
// from YAML, checked, run on a virtual clock, drawn.
//
//   parallel::Schedule s = parallel::make_schedule(
//       {.kind = parallel::ScheduleKind::one_f_one_b, .ranks = 4, .micros = 8});
//   check(s);                                                  // each once, no deadlock
//   parallel::Timeline t = simulate(s, {.forward = 1, .backward = 2});   // t.makespan == 33
//   write_atomic("1f1b.svg", to_svg(s, t));
//
// How a list is run: actions start in its order. A send leaves where it stands and waits for
// nobody. A receive is posted where it stands and waited for by the action that needs it. Messages
// from one rank to another stand in the same order in both lists. Lists made here keep that order
// for both directions together: they would run even if each send waited for its receive. Between
// stages of one rank nothing is sent.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/core/config.h"

namespace braid::parallel {

enum class ScheduleKind : uint8_t {
  naive,         // one micro-batch at a time
  gpipe,         // all forwards, then all backwards
  one_f_one_b,   // 1F1B with flush
  interleaved,   // 1F1B with several stages a rank
  zb_h1,         // split backward, memory of 1F1B
  zb_h2,         // split backward, no bubble, twice the memory
  zb_v,          // two stages a rank in V shape
  pipedream,     // no flush: an update after each micro-batch, with stashed weights
  pipedream_2bw  // no flush: an update after each `micros` micro-batches, two versions of weights
};
std::string_view to_text(ScheduleKind kind);   // "1f1b", "zb_h1", ...
std::vector<std::string> schedule_kinds();     // the words, in the order of the enumerators
ScheduleKind schedule_kind(std::string_view);  // throws ConfigError with the nearest word

enum class Act : uint8_t {
  forward,
  backward,         // of input and weights
  input_backward,   // B: of the input
  weight_backward,  // W: of the weights, later
  send_activation,  // of this stage to the next
  recv_activation,  // of the stage before
  send_gradient,    // of this stage's input to the stage before
  recv_gradient,    // of this stage's output
  gather,           // weights of the stage come (ZeRO-3)
  release,          // and go
  update            // of the stage's weights (without flush); `micro` is the last one that counts
};

struct Action {
  Act act = Act::forward;
  int stage = 0;
  int micro = 0;
  bool operator==(const Action&) const = default;
};
bool computes(Act act);  // forward, backward, input_backward, weight_backward
bool receives(Act act);
bool sends(Act act);

struct Schedule {
  std::string name;
  int ranks = 1, stages = 1, micros = 1;
  std::vector<int> rank_of;                // of each stage
  std::vector<std::vector<Action>> lists;  // of each rank
  bool splits_backward() const;
  std::vector<int> stages_of(int rank) const;  // ascending
  bool operator==(const Schedule&) const = default;
};

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int ranks = 1;
  int micros = 1;
  int chunks = 1;              // stages a rank: interleaved; zb_v always has 2 (or 1: not said)
  bool vertical_sync = false;  // pipedream: one version for a micro-batch on all stages
  bool gathers = false;        // with gather and release around the use of a stage's weights
  int gathered = 1;            // stages of a rank that may be gathered at the same time
  int rounds = 1;              // without flush: the list has rounds x micros micro-batches
};
// Throws ConfigError for what does not go together.
Schedule make_schedule(const ScheduleOptions& options);

// Throws ConfigError that names rank, action and what is missing: each (stage, micro) once forward
// and backward (and W), every send with its receive in the same order, no deadlock, at most
// `in_flight` micro-batches of a rank (0: no limit).
void check(const Schedule& schedule, int in_flight = 0);

struct Durations {
  double forward = 1, backward = 2;  // of a rank's stages together
  double input_backward = 1, weight_backward = 1;
  double message = 0;
  std::vector<double> stage_share = {};  // of each stage, in the time of a rank; empty: even
};

struct TimedAction {
  Action action;
  double begin = 0, end = 0;
};
struct Timeline {
  std::vector<std::vector<TimedAction>> ranks;
  double makespan = 0;
  double bubble = 0;           // idle share of all ranks over the makespan
  std::vector<double> busy;    // of each rank
  std::vector<double> span;    // of each rank: from its first action to its last
  std::vector<int> in_flight;  // most micro-batches of a rank's stages that wait for W or B
};
// Of a checked schedule. Messages travel beside the computing of both ranks.
Timeline simulate(const Schedule& schedule, const Durations& durations = {});

// With which version of its weights a stage runs a micro-batch, without flush: 0, 1, ...
struct VersionUse {
  int stage = 0, micro = 0, forward = 0, backward = 0;
  bool operator==(const VersionUse&) const = default;
};
std::vector<VersionUse> versions_of(const Schedule& schedule, const ScheduleOptions& options);
// Of each stage: most versions of its weights that must be kept at the same time.
std::vector<int> versions_kept(const Schedule& schedule, const ScheduleOptions& options);

std::string to_svg(const Schedule& schedule, const Timeline& timeline);
std::string to_text(const Schedule& schedule);  // one line a rank: "rank 0: F0 F1 B0 ..."
std::string to_yaml(const Schedule& schedule);
// The same; checked. Lists without any send or receive get them placed.
Schedule schedule_from(const Config& config);

// Blocks of each stage, so that the largest cost of a stage is as small as it can be: begin of each
// stage and the end. `memory` (may be empty) with `limit` (0: none): no stage above it.
std::vector<int64_t> split_blocks(const std::vector<double>& costs, int stages,
                                  const std::vector<double>& memory = {}, double limit = 0);

}  // namespace braid::parallel
