// SPDX-License-Identifier: BSD-3-Clause
// Which layout to take: all that keep the mathematics, those that cannot fit or cannot win left
// out, the rest run dry and ranked by throughput.
//
//   plan::Found found = plan::search({.options = run, .cluster = machine, .gpus = 64});
//   train::RunOptions best = found.plans.front().options;
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "braid/plan/cluster.h"
#include "braid/plan/layout.h"
#include "braid/plan/simulate.h"

namespace braid::plan {

// One point of the space.
struct Choice {
  parallel::MeshOptions mesh;
  int64_t zero = 0;
  memory::Again recompute = memory::Again::none;
  int64_t micro_batch = 1;
  parallel::ScheduleKind schedule = parallel::ScheduleKind::one_f_one_b;
  std::string precision = {};  // of the config, unless others were asked for
  std::vector<std::string> offload = {};
};
std::string to_text(const Choice& choice);  // data 8 x tensor 4, ZeRO-1, recompute blocks, micro 2
train::RunOptions apply(const train::RunOptions& options, const Choice& choice);

struct RankPeak {
  std::string name;  // kind of rank
  int64_t bytes = 0, reserved = 0, device = 0, host = 0;
  memory::KindBytes by_kind = {};
  std::string moment, module;
};

struct Plan {
  Choice choice;
  train::RunOptions options;
  bool fits = false;
  std::vector<RankPeak> peaks;
  int64_t peak_bytes = 0;  // of the fullest rank's device, with all of its overheads
  StepTime time;
  std::string reason;    // why it lost: does not fit by 3.1 GiB; bubble 23 %; ...
  double gpu_hours = 0;  // of the whole run, where its length is said
};

struct Request {
  train::RunOptions options;
  Cluster cluster;
  int64_t gpus = 1;
  int64_t memory = 0;                        // bytes of a GPU that may be used; 0: all of it
  int64_t global_batch = 0;                  // 0: of the config
  std::vector<std::string> precisions = {};  // empty: the config's
  bool offload = true;                       // try it too
  int64_t most_plans = 20;                   // that are kept with their timelines
  double seconds = 0;  // of searching, at least until something fits; 0: until it is done
  // Some times a second: choices that were run dry on so many GPUs.
  std::function<void(int64_t gpus, int64_t done, int64_t all)> progress = {};
};

struct Found {
  std::vector<Plan> plans;  // fastest first, then those that do not fit
  int64_t choices = 0;      // of the whole space
  int64_t pruned = 0;       // left out by a bound
  int64_t dry_runs = 0;
  double seconds = 0;
  std::vector<std::string> notes;  // what was not tried and why
};

std::vector<Choice> choices_of(const Request& request);  // the whole space, checked
Found search(const Request& request);
Plan evaluate(const Request& request, const Choice& choice);

// How the search works, over any space: bounds are sound, so the best is found.
struct Space {
  size_t size = 0;
  // No better throughput than this; 0: cannot fit. Asked again before a choice is evaluated: it may
  // have become lower by what was learnt meanwhile.
  std::function<double(size_t)> bound;
  std::function<std::pair<bool, double>(size_t)> value;  // fits, throughput
  std::function<bool()> stop = {};                       // no more time
};
struct Best {
  std::vector<size_t> order;  // evaluated, best first
  size_t evaluated = 0;
};
// Evaluates until no bound of the rest is above the worst of the best `keep`.
Best best_first(const Space& space, size_t keep);

// Something good soon: to the first neighbour that is better, and on from there, until none is.
struct Slope {
  std::function<std::vector<size_t>(size_t)> neighbours;
  std::function<bool(size_t there, size_t here)> better;
  std::function<bool()> stop = {};  // no more time
};
size_t climb(const Slope& slope, size_t start);  // where it ends

// Questions with one answer.
struct Answer {
  int64_t value = 0;  // 0: none
  Plan plan;
  std::string text;
};
Answer largest_micro_batch(const Request& request, const Choice& choice);
Answer largest_sequence(const Request& request, const Choice& choice);  // or image edge
Answer fewest_gpus(const Request& request);
Answer cheapest(const Request& request, int64_t most_gpus);  // least GPU hours

struct ScalingPoint {
  int64_t gpus = 1;
  double samples_per_second = 0, efficiency = 1;  // over the first point, a GPU
  Plan plan;
};
struct Scaling {
  std::vector<ScalingPoint> strong, weak;    // same global batch; same batch a GPU
  int64_t strong_below = 0, weak_below = 0;  // first number of GPUs below 75 %; 0: none
};
Scaling scaling(const Request& request, const std::vector<int64_t>& gpus);

// The effect of one change of the config, beside the config as it is.
struct Effect {
  std::string sets;  // --set train.zero=2
  Plan before, after;
  std::string text;
};
Effect effect_of(const Request& request, const std::vector<std::string>& sets);

}  // namespace braid::plan
