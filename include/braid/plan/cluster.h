// SPDX-License-Identifier: BSD-3-Clause
// Machines that the planner knows: what a GPU computes and holds, and what the links carry. Every
// number has a source; what a machine has not said is never invented.
//
//   plan::Cluster machine = plan::load_cluster("perlmutter");      // or a file of your own
//   double flops = machine.gpu.peak_of(c10::kBFloat16), bytes = machine.between.bandwidth;
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "braid/core/options.h"

namespace braid::plan {

// Seconds of one kernel at some sizes, as measured. Between two of them the logarithm of the ratio
// to the roofline is a straight line of the logarithms of the sizes.
struct CurvePoint {
  std::vector<double> at;  // sizes: m, n, k of a product; batch, tokens, head size; bytes
  double seconds = 0;
};
struct Curve {
  std::string kernel;  // gemm, attention, attention_backward, pointwise, reduce, norm, ...
  std::string dtype;
  std::vector<CurvePoint> points;
};

struct Gpu {
  std::string name;
  Bytes memory = {};                   // of the device
  double bandwidth = 0;                // bytes/s of its memory
  std::map<std::string, double> peak;  // FLOP/s by dtype: fp64, fp32, tf32, bf16, fp16, fp8
  double launch = 0;                   // seconds that the host takes for a kernel, one by one
  double graph_launch = 0;             // the same within a graph; 0: as one by one
  double view_launch = 0;              // that it takes for an operator without a kernel
  int64_t multiprocessors = 0;         // waves of tiles; 0: products are not rounded up to waves
  Bytes context = {};                  // taken by the driver before the first tensor
  Bytes gemm_workspace = {};           // of cuBLAS, a stream
  std::vector<Curve> curves;           // measured by `braid bench kernels`; may be empty
  // Share of the peak that large products, and of the bandwidth that streaming kernels reach: the
  // two constants that may be fitted.
  double gemm_share = 0, stream_share = 0;
  // Of the peak, for kernels that use the tensor cores' older instructions (flash attention 2 on
  // Hopper); 0: not said, as 1.
  double older_share = 0;
  // Times that large 16-bit products take under steady load, when power is short, over short runs:
  // the power that they would draw over what the board is given. Curves are of short runs. 0: none.
  double hot = 0;
  std::string fitted_on;  // which rows the two constants come from; empty: measured

  double peak_of(c10::ScalarType dtype,
                 bool tf32 = false) const;  // throws for what it does not say
};

struct Link {
  double latency = 0;    // seconds a hop
  double bandwidth = 0;  // bytes/s of a GPU, one direction
  double share = 0;      // of it that large collectives reach
};

struct Host {
  int64_t cores = 0;
  Bytes memory = {};
  double copy_bandwidth = 0;   // bytes/s between page-locked memory and a GPU, one direction
  double read_bandwidth = 0;   // bytes/s of a node from its file system
  double write_bandwidth = 0;  // bytes/s of a node to it
};

struct Cluster {
  std::string name, title, source;  // where its numbers come from
  Gpu gpu;
  Host host;  // of a node
  int64_t gpus_per_node = 1, nodes = 1;
  Link inside;   // a node
  Link between;  // nodes; of one GPU when all of its node talk
  int64_t gpus() const { return gpus_per_node * nodes; }
};

void describe(Fields& fields, Gpu& gpu);
void describe(Fields& fields, Host& host);
void describe(Fields& fields, Link& link);
void describe(Fields& fields, Cluster& cluster);

// Throws ConfigError for what a step's time cannot be computed from; `where`: of the file.
void check(const Cluster& cluster, const std::string& where);

// A name of known_clusters() or the path of a YAML file. ConfigError: unknown key (the nearest
// one), a bandwidth of zero, a GPU without peak, ...
Cluster load_cluster(const std::string& name_or_file);
std::vector<std::string> known_clusters();
std::string to_yaml(const Cluster& cluster);  // that load_cluster reads

}  // namespace braid::plan
