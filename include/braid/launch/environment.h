// SPDX-License-Identifier: BSD-3-Clause
// Where am I: the only place that reads environment variables. All else is handed this struct.
//
//   launch::Environment here = launch::environment();
//   if (here.rank == 0) bar.show(here.columns);
#pragma once
#include <optional>
#include <string>

namespace braid::launch {

struct Environment {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  std::string master_address;  // MASTER_ADDR: host of rank 0; empty if not set
  int master_port = 0;         // MASTER_PORT; 0 if not set
  bool agent_serves = false;   // torchrun's own process serves that port already
  bool stdout_is_tty = false;
  bool stderr_is_tty = false;
  int columns = 80;
  std::string job_id;  // SLURM
  std::string host;
};

// RANK, WORLD_SIZE, LOCAL_RANK (torchrun) if they are set, else SLURM_PROCID, SLURM_NTASKS,
// SLURM_LOCALID of a task that srun started (in a batch shell these count tasks that do not run).
// Throws ConfigError if a value is not a number in its range.
Environment environment();
std::optional<std::string> variable(const char* name);  // for doctor and tests

}  // namespace braid::launch
