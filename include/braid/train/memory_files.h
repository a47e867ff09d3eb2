// SPDX-License-Identifier: BSD-3-Clause
// What a ledger saw, as files: an interactive page, PyTorch's memory timeline, a memory snapshot.
//
//   memory::Ledger ledger;
//   { const memory::Instruments on({.ledger = &ledger}); step.run(batch, pass, lr); }
//   train::write_memory_files(ledger, memory::cpu, "runs/a/profile", {.rank = 0});
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "braid/memory/ledger.h"

namespace braid::train {

struct MemoryFilesOptions {
  int rank = 0;
  int64_t reserved = 0;     // most that the allocator held of the device; 0: it is not known
  int64_t did_not_fit = 0;  // bytes of the allocation that failed; 0: none did
  int64_t limit = 0;        // bytes that the device or memory.limit has; 0: it is not known
  std::string during = {};  // e.g. "steps 4 to 8": what the history covers, for the title
};

// Writes rank<R>_memory.html, rank<R>_memory.json, rank<R>_memory.raw.json and
// rank<R>_memory_snapshot.pickle into `dir` (made if need be) and returns their paths in that
// order. The history is that since Ledger::begin(). Throws StorageError.
std::vector<std::filesystem::path> write_memory_files(const memory::Ledger& ledger,
                                                      memory::Place place,
                                                      const std::filesystem::path& dir,
                                                      const MemoryFilesOptions& options);
inline std::vector<std::filesystem::path> write_memory_files(const memory::Ledger& ledger,
                                                             memory::Place place,
                                                             const std::filesystem::path& dir,
                                                             int rank) {
  return write_memory_files(ledger, place, dir, MemoryFilesOptions{.rank = rank});
}

}  // namespace braid::train
