// SPDX-License-Identifier: BSD-3-Clause
// A step of a layout in time: streams of each kind of rank, messages between stages, what hides
// behind what.
//
//   plan::StepTime time = plan::simulate(layout, model);   // time.seconds, time.parts.bubble
//   write_atomic("plan_trace.json", plan::to_trace(time));
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "braid/plan/cost.h"
#include "braid/plan/layout.h"

namespace braid::plan {

// Of the slowest rank; they add up to `seconds`.
struct TimeParts {
  double forward = 0, backward = 0, recompute = 0, optimizer = 0;  // kernels run
  double communication = 0;  // waited for: not hidden behind kernels
  double copies = 0;         // between host and device, waited for
  double bubble = 0;         // waits for other stages
  double launch = 0;         // the GPU waits for the host
  double data = 0;           // waits for samples
  double checkpoint = 0;     // a step's share of the stalls of saving
};

struct TimeSpan {
  int64_t rank = 0;
  std::string stream;  // compute, comm <group>, copy, host
  std::string name;
  double begin = 0, end = 0;
};

struct StepTime {
  double seconds = 0;
  TimeParts parts;
  double hidden_communication = 0;  // seconds of it behind kernels
  double host_seconds = 0;          // that the host takes to start all kernels, one by one
  double samples_per_second = 0, tokens_per_second = 0;
  double flops_per_second = 0;                // of a GPU, without what is computed again
  double model_utilisation = 0;               // share of the peak
  std::vector<TimeSpan> timeline;             // with SimulateOptions::timeline
  std::map<std::string, double> by_operator;  // seconds on the slowest rank
};

struct SimulateOptions {
  bool timeline = false;
  double sample_bytes = 0;      // that a sample takes from the file system; 0: data costs nothing
  double checkpoint_every = 0;  // steps; 0: never
  double checkpoint_bytes = 0;  // of the whole model
};

// What things cost: of a model, or given by hand.
struct Prices {
  std::function<OpCost(const memory::Operator&)> op;
  // Seconds, once all have come; `rank` of the world calls it.
  std::function<double(const Message&, int rank)> message;
  std::function<double(int64_t bytes)> copy;  // seconds between host and device
  double message_host = 0;                    // seconds of the host to start a message
  Cluster cluster = {};                       // nodes, file system, peaks
};
Prices prices_of(const CostModel& model);

// CommError for layouts that cannot end: a receive without its send, a collective without some of
// its stages.
StepTime simulate(const LayoutRun& layout, const CostModel& model, const SimulateOptions& how = {});
StepTime simulate(const LayoutRun& layout, const Prices& prices, const SimulateOptions& how = {});
std::string to_trace(const StepTime& time);  // Chrome/Perfetto JSON

}  // namespace braid::plan
