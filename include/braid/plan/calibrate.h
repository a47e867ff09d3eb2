// SPDX-License-Identifier: BSD-3-Clause
// Measures a machine: how long kernels of many sizes take on its device, what starting one costs
// the host, and what its links carry. The result is a cluster file.
//
//   plan::Cluster machine = plan::measure_kernels({.device = {c10::kCUDA, 0}});
//   write_atomic("mine.yaml", plan::to_yaml(machine));
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "braid/comm/group.h"
#include "braid/plan/cluster.h"

namespace braid::plan {

struct CalibrateOptions {
  c10::Device device = c10::kCPU;
  std::vector<std::string> dtypes = {"bf16", "fp32", "tf32"};  // fp16 is as fast as bf16
  std::string only = {};  // kernels whose name has this in it; empty: all
  double seconds = 120;   // of measuring; what is left over is said in `source`
  bool small = false;     // a few small sizes of everything: to see that it works
  std::function<void(int64_t done, int64_t all)> progress = {};
};

// A cluster of one GPU with curves, launch costs, copies between host and device. What the data
// sheet of the GPU says is taken from the known cluster with that GPU; of any other the highest
// rates that were seen.
Cluster measure_kernels(const CalibrateOptions& options);

// One collective at one size, over a real group.
struct CommPoint {
  comm::Kind kind = comm::Kind::all_reduce;
  int64_t bytes = 0;     // of the whole tensor
  double seconds = 0;    // median over repetitions of the slowest rank
  double algorithm = 0;  // bytes/s: bytes over seconds
  double bus = 0;        // bytes/s of a link that carries it as a ring does
};
struct CommOptions {
  c10::Device device = c10::kCPU;
  int64_t smallest = 1 << 10, largest = 64 << 20;
  int repetitions = 10;
  std::function<void(int64_t done, int64_t all)> progress = {};
};
// All ranks of the group together; every rank gets the same points.
std::vector<CommPoint> measure_comm(const comm::Group& group, const CommOptions& options);

// Latency a hop and bandwidth by least squares over the points of rings; share is 1, as what was
// measured is what large collectives reach.
Link fit_link(const std::vector<CommPoint>& points, int ranks);

}  // namespace braid::plan
