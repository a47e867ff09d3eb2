// SPDX-License-Identifier: BSD-3-Clause
// The entries of a tape: all results of an operator, also those that are not tensors.
#pragma once
#include <ATen/core/ivalue.h>

#include <set>
#include <string>
#include <vector>

#include "braid/memory/tape.h"

namespace braid::memory {

struct Tape::State {
  struct Entry {
    std::string name;
    std::vector<c10::IValue> results;
  };
  std::set<std::string> names;
  std::vector<Entry> entries;
  size_t position = 0;

  // The results of the next kept operator, which must be of that name; each is given once.
  std::vector<c10::IValue> next(const std::string& name);
};

}  // namespace braid::memory
