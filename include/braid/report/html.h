// SPDX-License-Identifier: BSD-3-Clause
// One self-contained HTML page of one or several run folders: `braid report runs/a runs/b`.
//
//   write_atomic("report.html", report::html_report({"runs/a", "runs/b"}));
//   report::RunSummary a = report::summarize("runs/a");   // a.loss, a.samples_per_second, ...
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace braid::report {

// Reads each folder's log.jsonl and, if there is one, picture.png. Throws DataError if a log is
// missing or broken.
std::string html_report(const std::vector<std::filesystem::path>& runs);

struct BestValue {
  std::string name;  // of the metric; "loss" if a validation has none
  double value = 0;
  int64_t step = 0;
};

struct RunSummary {
  std::string name;
  std::string model;
  std::string device;
  std::string reason;  // why it ended; "" while it runs, or if it was killed
  int64_t parameters = 0;
  int64_t global_batch = 0;
  int64_t steps = 0;   // the last one
  double loss = 0;     // of the last step
  double seconds = 0;  // in training steps, with those before a resume
  double samples_per_second = 0, tokens_per_second = 0, tflops = 0;  // means over all steps
  double data_wait = 0;                                              // share of the time, 0 to 1
  int64_t memory = 0;                                                // peak in bytes
  std::optional<double> valid_loss;                                  // of the last validation
  std::vector<std::pair<std::string, double>> metrics;               // of the last validation
  std::optional<BestValue> best;  // of the main metric of all validations
  int64_t ranks = 1;              // of the last start
  double comm_wait = 0;           // share of the time rank 0 waited for others, 0 to 1
};
RunSummary summarize(const std::filesystem::path& run);

// Accuracy, PSNR and the like grow; errors and losses shrink.
bool higher_is_better(const std::string& metric);

}  // namespace braid::report
