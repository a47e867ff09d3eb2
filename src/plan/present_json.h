// SPDX-License-Identifier: BSD-3-Clause
// Parts of the JSON that a plan is told in.
#pragma once
#include <nlohmann/json.hpp>

#include "braid/plan/present.h"

namespace braid::plan {

using Json = nlohmann::ordered_json;

Json request_object(const Request& request);
Json cluster_object(const Cluster& cluster);
Json plan_object(const Plan& plan);
Json parts_object(const TimeParts& parts);
Json kinds_object(const memory::KindBytes& by_kind);  // parameter: 12, ...
std::string_view recompute_word(memory::Again again);
// The config's, where the choice does not say.
const std::string& precision_word(const Plan& plan);
std::string reason_word(const Plan& plan);  // of the winner, too
std::string model_word(const train::RunOptions& options);
int64_t batch_asked(const Request& request);  // global; 0: said a rank

// The parts of a step with their names, in the order in which they are told.
std::vector<std::pair<std::string, double>> named_parts(const TimeParts& parts);

}  // namespace braid::plan
