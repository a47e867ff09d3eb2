// SPDX-License-Identifier: BSD-3-Clause
// Lists as launchers write them.
//
//   launch::expand_hosts("n[08-10],login");   // n08 n09 n10 login
//   launch::expand_counts("2(x3),1");         // 2 2 2 1
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace braid::launch {

// Names between commas, blanks or line ends; brackets hold numbers and ranges, zeros in front are
// kept, several brackets in a name multiply. Throws ConfigError naming the list if it is not one.
std::vector<std::string> expand_hosts(std::string_view list);
std::vector<int> expand_counts(std::string_view list);  // SLURM_TASKS_PER_NODE

}  // namespace braid::launch
