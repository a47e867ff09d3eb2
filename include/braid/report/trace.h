// SPDX-License-Identifier: BSD-3-Clause
// What traces of ranks (Chrome JSON, as Kineto writes it) say of where the time went.
//
//   std::string mine = report::rank_profile({.file = "rank0_trace.json", .rank = 0});  // JSON
//   std::string summary = report::profile_summary({mine, other});                      // JSON
//   std::cout << report::profile_text(summary);                                        // tables
//   report::merge_traces({{"rank0_trace.json", 0}, {"rank1_trace.json", 1}}, "trace.json");
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace braid::report {

// Of one step: what an operator computes and moves.
struct OperatorCost {
  std::string name;
  double flops = 0, bytes = 0;
};

struct RankProfile {
  std::filesystem::path file;
  int rank = 0;
  bool pipelined = false;           // waiting for a message is a bubble
  std::vector<OperatorCost> costs;  // by operator
  double forward_flops = 0, backward_flops = 0, optimizer_flops = 0;  // of one step
};

// Steps, parts of the time, operators and modules of one rank. Throws DataError if the trace is
// none, or has no ProfilerStep.
std::string rank_profile(const RankProfile& rank);

// Steps with instruments (ledger, regions) and without, in turn.
struct InstrumentCost {
  std::vector<double> on, off;  // seconds; empty: not measured
};

std::string profile_summary(const std::vector<std::string>& ranks, const InstrumentCost& cost = {});
std::string profile_text(const std::string& summary);

struct TracePart {
  std::filesystem::path file;
  int rank = 0;
  int64_t clock_offset = 0;  // nanoseconds to add to the rank's clock for that of rank 0
};
// One trace with a process a rank. Parts that are not there are left out; gives their number.
int merge_traces(const std::vector<TracePart>& parts, const std::filesystem::path& to);

}  // namespace braid::report
