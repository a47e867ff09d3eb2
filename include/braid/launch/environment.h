// SPDX-License-Identifier: BSD-3-Clause
// Where am I: the only place that reads environment variables. All else is handed this struct.
//
//   launch::Environment here = launch::environment();
//   if (here.rank == 0) bar.show(here.columns);
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braid::launch {

enum class Launcher : uint8_t { alone, own, torchrun, kubernetes, mpirun, slurm, skypilot };
std::string_view to_text(Launcher launcher);

struct Environment {
  Launcher launcher = Launcher::alone;
  int rank = 0;
  int world = 1;
  int local_rank = 0;   // among the ranks of this host
  int local_world = 1;  // ranks of this host; 0 if the launcher does not say
  int node_rank = 0;    // number of this host; -1 if the launcher does not say
  int to_start = 1;     // ranks that this process is to start: some launchers start one a host
  bool parent_is_launcher = false;      // the rank is to end with it; false: not known
  std::string master_address = {};      // host of rank 0; empty if nobody says
  int master_port = 0;                  // of the store there; 0 if nobody says
  bool store_served = false;            // by the launcher's own process, not by rank 0
  int store_socket = -1;                // connected to the store by the launcher; -1: none
  std::string token = "open";           // what sets this job apart from another at the same port
  bool secret = false;                  // the token cannot be guessed: BRAID_JOB_TOKEN gave it
  std::vector<std::string> hosts = {};  // of the job, that of rank 0 first, if the launcher says
  int waiting_tasks = 0;                // of a SLURM job inside which this was started without srun
  std::string visible_gpus = {};        // CUDA_VISIBLE_DEVICES
  std::vector<int> cores = {};          // that this process may run on
  int math_threads = 0;                 // OMP_NUM_THREADS, 0 if not set
  std::string debug = {};  // TORCH_DISTRIBUTED_DEBUG; DETAIL: ranks compare their calls
  bool stdout_is_tty = false;
  bool stderr_is_tty = false;
  int columns = 80;
  std::string job_id = {};  // SLURM
  std::string host = {};
};

using Lookup = std::function<std::optional<std::string>(const char* name)>;

// What the variables say. The order of belief: RANK and WORLD_SIZE (own launcher, torchrun,
// Kubernetes), OMPI_COMM_WORLD_* (mpirun), SLURM_* of a task that srun started (in a batch shell
// they count tasks that do not run), PET_* (Kubernetes) and SKYPILOT_*. Throws ConfigError if a
// value is not a number in its range, or one of a pair is missing.
Environment environment(const Lookup& lookup);
Environment environment();  // of this process, with its terminal, host and cores
std::optional<std::string> variable(const char* name);  // for doctor and tests

// 15000 + the last four digits of a job's number; 12910 without one.
int port_of_job(std::string_view job_id);

// With NCCL_DEBUG set, what NCCL says goes to this file instead of the terminal, unless
// NCCL_DEBUG_FILE says otherwise. Before the first use of NCCL. True if it does.
bool send_nccl_debug_to(const std::string& file);

// OpenMP's threads wait for each other awake, for 3 ms and more: on cores that are shared with
// other programs most of a step's time. libgomp reads how long as it is loaded, so where no
// variable says it the program starts anew with 30 us. Returns if there is nothing to do, the
// system refuses, or the program would leave valgrind or the loader that it was started with.
// First thing in main; `words` are main's.
void wait_briefly(char* const* words);

// The variables of this process but for those that say which rank it is: for a rank to be started.
std::vector<std::string> variables_to_inherit();

}  // namespace braid::launch
