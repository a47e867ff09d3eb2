// SPDX-License-Identifier: BSD-3-Clause
// What `braid doctor` looks at.
#pragma once
#include <string>
#include <vector>

namespace braid::cli {

struct Check {
  std::string name;
  bool good = true;
  bool needed = true;  // false: only some uses need it
  std::string found;
  std::string fix = {};
};

std::vector<Check> all_checks();

}  // namespace braid::cli
