// SPDX-License-Identifier: BSD-3-Clause
// What `braid plan` was asked, and its parts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "braid/plan/search.h"
#include "cli/command.h"

namespace braid::cli {

struct PlanArguments {
  ConfigArguments config;
  std::string cluster, memory, html, trace, apply;
  std::optional<std::string> leave;  // empty: the run's own folder
  std::optional<int64_t> gpus, global_batch;
  std::vector<std::string> precisions, effect;
  std::vector<int64_t> scaling;
  int64_t top = 10, cheapest = 0;
  double seconds = 120;  // time limit
  bool no_offload = false, as_is = false, json = false, verify = false;
  bool explain = false, max_micro_batch = false, max_size = false, min_gpus = false;
  bool published = false, term_by_term = false;
};

void add_plan_options(CLI::App& command, PlanArguments& arguments);
void check_flags(const PlanArguments& arguments);  // refuses those that would be ignored

// Checked: ConfigError for no machine, no GPUs, more of them or more memory than there are.
plan::Request plan_request(const PlanArguments& arguments);
void end_plan_progress(const PlanArguments& arguments);  // its line goes
// The config's own mesh, alone.
plan::Found plan_as_is(const plan::Request& request);
// --html, --trace, --apply and --leave. Gives what was written.
std::vector<std::string> write_plan_files(const PlanArguments& arguments,
                                          const plan::Request& request, const plan::Found& found);
Exit verify_plan(const PlanArguments& arguments);

}  // namespace braid::cli
