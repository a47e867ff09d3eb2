// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>

namespace braid::plan {

struct ClusterFile {
  std::string name, text;
};
const std::vector<ClusterFile>& cluster_files();

}  // namespace braid::plan
