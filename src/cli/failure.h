// SPDX-License-Identifier: BSD-3-Clause
// Exceptions of libraries as an exit code and a sentence.
#pragma once
#include <exception>
#include <string>

#include "braid/core/error.h"

namespace braid::cli {

struct Failure {
  Exit code = Exit::internal;
  std::string text;  // for stderr
};
Failure failure_of(const std::exception& error);

}  // namespace braid::cli
