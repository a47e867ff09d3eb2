// SPDX-License-Identifier: BSD-3-Clause
// What is said when a segment cannot be computed again as it was.
#pragma once
#include <string>

#include "braid/core/error.h"
#include "memory/recompute_value.h"

namespace braid::memory {

struct Difference {
  std::string segment;
  size_t number = 0, all = 0;  // of the value, and how many there are
  ValueMark first, second;     // as the two runs saw it
};
InternalError other_value(const Difference& difference);
InternalError missing_values(const std::string& segment, size_t came, size_t all,
                             const std::string& next);
InternalError changed_input(const std::string& segment, size_t input, const std::string& when);
InternalError changed_value(const std::string& segment, size_t number, const std::string& value);

// Throws the exception that is being handled again, with the name of the segment in its text and,
// as far as a text can be added to it, of the same type.
[[noreturn]] void throw_in_segment(const std::string& segment);

}  // namespace braid::memory
