// SPDX-License-Identifier: BSD-3-Clause
// What to switch on for a model on a machine, and why, in the order in which a person would try it.
//
//   for (const plan::Advice& step : plan::explain(request))
//     std::cout << step.question << step.answer;
#pragma once
#include <string>
#include <vector>

#include "braid/plan/search.h"

namespace braid::plan {

struct Advice {
  std::string question;                // Does one replica fit on one GPU?
  std::string answer;                  // No: 94.2 GiB of 80.0 GiB, most of it activations (71 %).
  std::vector<std::string> sets = {};  // what to type, if this is a step to take
  bool taken = false;
};
std::vector<Advice> explain(const Request& request);
std::string to_text(const std::vector<Advice>& advice);

}  // namespace braid::plan
