// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/statistics.h"

#include "braid/data/npy.h"
#include "braid/data/options.h"

namespace braid::data {

const std::vector<StatisticFile>& statistic_files() {
  static const std::vector<StatisticFile> all = {{"data.means", &DataOptions::means},
                                                 {"data.stds", &DataOptions::stds}};
  return all;
}

std::vector<float> read_statistic(const DataOptions& options, const StatisticFile& which) {
  const auto kept = options.statistics.find(which.key);
  if (kept != options.statistics.end()) return kept->second;
  const std::string& file = options.*which.file;
  if (file.empty()) return {};
  const at::Tensor values = read_npy(file).to(c10::kFloat).reshape({-1}).contiguous();
  const float* first = values.const_data_ptr<float>();
  return {first, first + values.numel()};
}

Statistics read_statistics(const DataOptions& options) {
  Statistics all;
  for (const StatisticFile& which : statistic_files())
    if (std::vector<float> values = read_statistic(options, which); !values.empty())
      all[which.key] = std::move(values);
  return all;
}

}  // namespace braid::data
