// SPDX-License-Identifier: BSD-3-Clause
// Plans as people and programs read them: a table, JSON, a page, a config, and the file that a run
// is held to.
//
//   std::cout << plan::table_text(request, found);
//   write_atomic("plan.html", plan::page_html(request, found));
//   write_atomic("best.yaml", plan::config_text(request, found.plans.front()));
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "braid/core/error.h"
#include "braid/plan/search.h"

namespace braid::plan {

int64_t memory_limit(const Request& request);   // bytes of a GPU that may be used
std::string layout_text(const Choice& choice);  // data 8 x tensor 4; one GPU
std::string memory_text(const Choice& choice);  // recompute blocks, offload optimizer; -

// The point of the space that a config is as it stands. ConfigError for a mesh that does not make
// up `world`. micro_batch 0: auto, to be found.
Choice choice_of(const train::RunOptions& options, int64_t world);

std::string table_text(const Request& request, const Found& found, size_t top = 10);
std::string plan_text(const Request& request, const Plan& plan);  // one plan in full
std::string scaling_text(const Request& request, const Scaling& scaling);
std::string effect_text(const Request& request, const Effect& effect);

// One object in one line each. All have `request` and `cluster`.
std::string found_json(const Request& request, const Found& found, size_t top = 0);  // 0: all
std::string answer_json(const Request& request, const Answer& answer);
std::string scaling_json(const Request& request, const Scaling& scaling);
std::string effect_json(const Request& request, const Effect& effect);

std::string page_html(const Request& request, const Found& found);

// What `braid train` takes, with a comment of where it comes from.
std::string config_text(const Request& request, const Plan& plan);
// plan.json of a run folder, as train::read_expected reads it.
std::string run_json(const Request& request, const Plan& plan);

// Nothing fits: the nearest miss and what would help.
MemoryError no_plan_fits(const Request& request, const Found& found);

}  // namespace braid::plan
