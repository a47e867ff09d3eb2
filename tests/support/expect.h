// SPDX-License-Identifier: BSD-3-Clause
// Checks that a test reads the words a user would read.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "braid/core/error.h"

namespace braid::test {

// Runs `body`, expects an Error and gives its whole text ("what", "why", "fix", "where" in one
// string).
template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return explain(error.complaint());
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

inline testing::AssertionResult contains(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in:\n" << text;
}

}  // namespace braid::test
