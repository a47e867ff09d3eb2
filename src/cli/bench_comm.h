// SPDX-License-Identifier: BSD-3-Clause
// What braid bench comm prints and writes.
#pragma once
#include <string>
#include <vector>

#include "braid/launch/environment.h"
#include "braid/plan/calibrate.h"

namespace braid::cli {

struct CommArguments {
  int ranks = 0;
  std::string device, backend = "auto", cluster, out, dir = "runs/bench_comm";
  std::string smallest = "1 KiB", largest = "64 MiB";
  int repetitions = 10;
  bool json = false;
};

struct CommPrint {
  std::string which;  // inside, between
  int ranks = 0;
  bool json = false;
};
void print_comm(const std::vector<plan::CommPoint>& points, const plan::Link& link,
                const CommPrint& how);

// ConfigError for a cluster that cannot be written.
void check_output(const CommArguments& arguments);
// Puts the link into the cluster's file; all else in it stays. The file; empty: none was named.
std::string update_cluster(const CommArguments& arguments, const plan::Link& link,
                           const launch::Environment& here, bool one_host);

}  // namespace braid::cli
