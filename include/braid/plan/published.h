// SPDX-License-Identifier: BSD-3-Clause
// Speed of training runs that others published, beside what dry runs of the same models on the same
// machines say.
//
//   std::cout << plan::published_table();                      // every row, hits and misses
//   for (const plan::PublishedTime& row : plan::published_times()) plan::predict(row).value;
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "braid/plan/simulate.h"
#include "braid/train/options.h"

namespace braid::plan {

enum class Figure : uint8_t {
  step,           // seconds
  tokens,         // a second and GPU
  samples,        // a second
  layer_forward,  // milliseconds of one block
  layer_backward
};
std::string unit_of(Figure figure);

// Kernels of the run where braid has one of its own.
enum class Attention : uint8_t { as_braid, flash, written_out };
enum class Fused : uint8_t { all, loss, none };  // norms, positions, activations and the loss

struct PublishedTime {
  std::string table;  // B1, B2, ... of docs/predictions.md
  std::string run;
  std::string cluster;
  int64_t world = 1;
  Figure figure = Figure::step;
  double published = 0;
  train::RunOptions options;
  Attention attention = Attention::as_braid;
  Fused fused = Fused::all;
  double products_again = 1;  // computed again backward, times those of braid
  bool counts = true;         // compute-bound and modelled: part of the mean error
  bool fitted = false;        // the two constants of its GPU come from it
  std::string note = {};
  // Where it is not the cluster's own: GPUs of a node, bytes/s of the GPU's memory.
  int64_t gpus_per_node = 0;
  double bandwidth = 0;
};
const std::vector<PublishedTime>& published_times();

struct PredictedTime {
  double value = 0;           // in the unit of the row
  TimeParts parts;            // of a step
  bool launch_bound = false;  // the host takes as long to start the kernels as the step takes
  double error(const PublishedTime& row) const { return value / row.published - 1; }
};
PredictedTime predict(const PublishedTime& row);
// The same on a machine of which more is known, or less.
PredictedTime predict(const PublishedTime& row, const Cluster& cluster);
Cluster cluster_of(const PublishedTime& row);

// Numbers of parameters, as printed: in billions with one digit.
struct PublishedCount {
  std::string run, printed;
  train::RunOptions options;
};
const std::vector<PublishedCount>& published_counts();
int64_t count_parameters(const train::RunOptions& options);

// Table 1 of the ZeRO paper: GB of parameters, gradients and states a rank.
struct PublishedStates {
  double parameters = 0;
  int64_t zero = 1, ranks = 1;
  std::string printed;
};
const std::vector<PublishedStates>& published_states();
// Bytes a parameter of a dry rank at the end of its backward pass.
double state_bytes(int64_t zero, int64_t ranks);
// Whether a value reads like this, with its last digit cut off or rounded.
bool reads(double value, const std::string& printed);

std::string published_line(const PublishedTime& row, const PredictedTime& predicted);

struct TableOptions {
  bool long_rows = true;  // also those that take more than a few seconds
};
std::string published_table(const TableOptions& how = {});

}  // namespace braid::plan
