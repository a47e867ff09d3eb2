// SPDX-License-Identifier: BSD-3-Clause
// What `braid inspect --memory` tells: a dry step by kind and module, and what smaller choices
// save.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "braid/train/measure.h"

namespace braid::cli {

struct Saving {
  std::string change;  // as typed: --set train.precision=bf16
  int64_t peak = 0;    // of a step with it
};

struct MemoryView {
  std::string device;
  int64_t batch = 0, micro_batch = 0;
  std::string precision;
  train::Measured measured;
  std::vector<Saving> savings;
};

MemoryView memory_view(const train::RunOptions& options, c10::Device device);
void print_memory(const MemoryView& view);
nlohmann::json memory_json(const MemoryView& view);

}  // namespace braid::cli
