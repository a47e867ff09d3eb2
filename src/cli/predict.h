// SPDX-License-Identifier: BSD-3-Clause
// What `braid predict` is told, and the three things that it can do.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "braid/nn/generate.h"
#include "cli/command.h"

namespace braid::cli {

struct PredictArguments {
  std::string run, checkpoint = "newest", input, dataset = "fields", out = "prediction.npy", prompt;
  std::optional<int64_t> frame;
  std::string channel;  // by name or number; empty: the first
  int64_t steps = 1;
  nn::GenerateOptions text;
  std::vector<std::string> sets;
};

Exit predict_forecast(const PredictArguments& arguments, const SavedModel& saved, nn::Model& model);
Exit predict_finer(const PredictArguments& arguments, const SavedModel& saved, nn::Model& model);
Exit predict_text(const PredictArguments& arguments, const SavedModel& saved, nn::Model& model);

}  // namespace braid::cli
