// SPDX-License-Identifier: BSD-3-Clause
// A machine with round numbers: two nodes of four GPUs.
#pragma once
#include "braid/plan/cluster.h"

namespace braid::test {

inline plan::Cluster two_nodes() {
  plan::Cluster c;
  c.name = "two";
  c.gpus_per_node = 4;
  c.nodes = 2;
  c.inside = {1e-6, 100e9, 0.5};
  c.between = {10e-6, 20e9, 0.5};
  c.host.copy_bandwidth = 10e9;
  c.gpu.name = "G";
  c.gpu.memory = {int64_t{80} << 30};
  c.gpu.bandwidth = 1e12;
  c.gpu.peak = {{"bf16", 100e12}, {"fp32", 10e12}, {"tf32", 50e12}};
  c.gpu.launch = 5e-6;
  c.gpu.graph_launch = 1e-6;
  c.gpu.view_launch = 0.5e-6;
  c.gpu.gemm_share = 0.8;
  c.gpu.stream_share = 0.5;
  return c;
}

}  // namespace braid::test
