// SPDX-License-Identifier: BSD-3-Clause
// Memory of training runs that others published, beside what dry runs of the same models say: with
// the operators, dtypes and buffers of those runs (model.kernels: reference), and with braid's own.
//
//   std::cout << plan::published_memory_table();      // no GPU, a few seconds
//   for (const plan::PublishedMemory& row : plan::published_memory()) plan::predict(row).allocated;
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "braid/memory/ledger.h"
#include "braid/train/options.h"

namespace braid::plan {

struct PublishedMemory {
  std::string run = {};            // what ran
  std::string gpu = {};            // where
  int64_t memory = 0;              // bytes of that GPU that a program can have
  int64_t context = 0;             // of the driver's
  int64_t gemm_workspace = 0;      // that cuBLAS holds for a thread
  int64_t world = 1;               // ranks of the job
  std::optional<double> gib = {};  // published; none: it ran out of memory
  double reserved_gib = 0;         // published beside it; 0: not said
  bool whole_device = false;  // published is what the device had in use, not the allocator's peak
  train::RunOptions options = {};  // with model.kernels: reference
  std::string note = {};           // what the figure is of
};

struct PredictedMemory {
  int64_t allocated = 0;  // highest, in blocks of the caching allocator, with cuBLAS' workspaces
  int64_t reserved = 0;   // segments that they came from, with the gaps
  int64_t device = 0;     // and the driver's context; without buffers of communicators
  memory::Peak peak;      // of tensors alone
};

const std::vector<PublishedMemory>& published_memory();
PredictedMemory predict(const PublishedMemory& row, nn::Kernels kernels = nn::Kernels::reference);

// What is compared with the published figure.
int64_t compared(const PublishedMemory& row, const PredictedMemory& predicted);
bool fits(const PublishedMemory& row, const PredictedMemory& predicted);

// A line for each row, misses and all, as text.
std::string published_memory_table();

}  // namespace braid::plan
