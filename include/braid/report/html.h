// SPDX-License-Identifier: BSD-3-Clause
// One self-contained HTML page of one or several run folders: `braid report runs/a runs/b`.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace braid::report {

// Reads each folder's log.jsonl and config.yaml. Throws DataError if one is missing or broken.
std::string html_report(const std::vector<std::filesystem::path>& runs);

struct RunSummary {
  std::string name;
  int64_t steps = 0;
  double loss = 0, seconds = 0, samples_per_second = 0, tflops = 0;
  int64_t memory = 0;
  std::vector<std::pair<std::string, double>> metrics;  // of the last validation
};
RunSummary summarize(const std::filesystem::path& run);

}  // namespace braid::report
