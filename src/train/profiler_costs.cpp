// SPDX-License-Identifier: BSD-3-Clause
#include "train/profiler_costs.h"

#include <map>
#include <string>

namespace braid::train {

report::RankProfile costs_of(const memory::OperatorLog& log) {
  report::RankProfile profile;
  std::map<std::string, report::OperatorCost> by_name;
  for (const memory::Operator& op : log.operators()) {
    report::OperatorCost& cost = by_name[op.name];
    cost.flops += op.flops;
    cost.bytes += static_cast<double>(op.bytes);
    double& part = op.backward                ? profile.backward_flops
                   : op.module == "optimizer" ? profile.optimizer_flops
                                              : profile.forward_flops;
    part += op.flops;
  }
  for (auto& [name, cost] : by_name) {
    cost.name = name;
    profile.costs.push_back(cost);
  }
  return profile;
}

}  // namespace braid::train
