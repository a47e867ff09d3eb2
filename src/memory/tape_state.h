// SPDX-License-Identifier: BSD-3-Clause
// The entries of a tape: all results of an operator, also those that are not tensors.
#pragma once
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

#include "braid/memory/tape.h"
#include "memory/saved.h"

namespace braid::memory {

using TapeResults = std::vector<c10::IValue>;

struct Tape::State {
  struct Entry {
    std::string name;
    std::optional<TapeResults> results;  // none: handed out, or no longer what they were
    std::vector<Kept> held;              // their tensors, for the ledger
  };
  TapeOptions options;
  std::vector<Entry> entries;
  size_t position = 0;  // of the next entry to hand out
  size_t seen = 0;      // calls of options.every_second in this pass
  size_t replayed = 0;

  // Whether this call, the next one of the pass, is one of those kept.
  bool chooses(const std::string& name);
  void keep(const std::string& name, TapeResults results);
  // The results of the next kept operator, which must be of that name.
  std::optional<TapeResults> next(const std::string& name);
  void written(const at::Tensor& tensor);  // by an operator: what was kept of it is worth nothing
};

// What the innermost scope of this thread does.
struct TapeUse {
  Tape::State* tape = nullptr;
  TapeMode mode = TapeMode::record;
};
TapeUse tape_now();

}  // namespace braid::memory
