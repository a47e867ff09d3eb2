// SPDX-License-Identifier: BSD-3-Clause
// Where am I: the only place that reads environment variables. Everything else is handed this struct.
#pragma once
#include <optional>
#include <string>

namespace braid::launch {

struct Environment {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  bool stdout_is_tty = false;
  bool stderr_is_tty = false;
  int columns = 80;
  std::string job_id;       // SLURM
  std::string host;
};

Environment environment();
std::optional<std::string> variable(const char* name);  // for doctor and tests

}  // namespace braid::launch
