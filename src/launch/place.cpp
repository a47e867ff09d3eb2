// SPDX-License-Identifier: BSD-3-Clause
// What each launcher says about the place of a rank.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "braid/core/error.h"
#include "braid/launch/environment.h"
#include "braid/launch/hosts.h"

namespace braid::launch {
namespace {

constexpr int most_ranks = 1 << 24;

std::optional<int> whole_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  bool has(const char* name) const { return lookup_(name).has_value(); }
  std::string text(const char* name) const { return lookup_(name).value_or(""); }
  int number(const char* name, int least, int most) const {
    const auto number = whole_number(text(name));
    if (number && *number >= least && *number <= most) return *number;
    throw ConfigError(
        {.what = fmt::format("the environment variable {} is \"{}\"", name, text(name)),
         .why = fmt::format("a number from {} to {} is needed", least, most),
         .fix = fmt::format("start with braid train --ranks N, torchrun, mpirun or srun, or: "
                            "unset {}",
                            name)});
  }
  int number_or(const char* name, int least, int most, int other) const {
    return has(name) ? number(name, least, most) : other;
  }
  // All of them or none.
  bool has_all(std::initializer_list<const char*> names) const {
    const char *given = nullptr, *missing = nullptr;
    for (const char* name : names) (has(name) ? given : missing) = name;
    if (given == nullptr || missing == nullptr) return missing == nullptr;
    throw ConfigError(
        {.what = fmt::format("the environment variable {} is set, {} is not", given, missing),
         .why = "a rank needs to know both its number and how many there are",
         .fix = fmt::format("start with braid train --ranks N or torchrun, which set both, or: "
                            "unset {}",
                            given)});
  }
  std::string first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (!text(name).empty()) return text(name);
    return "";
  }

 private:
  const Lookup& lookup_;
};

// Of CUDA_VISIBLE_DEVICES if that is set, else by the device files that this container was given.
int gpus_seen(const Variables& v) {
  if (v.has("CUDA_VISIBLE_DEVICES")) {
    const std::vector<std::string> visible = expand_hosts(v.text("CUDA_VISIBLE_DEVICES"));
    return static_cast<int>(std::find(visible.begin(), visible.end(), "-1") - visible.begin());
  }
  int count = 0;
  for (int device = 0; device < 64; ++device)
    count += std::filesystem::exists(fmt::format("/dev/nvidia{}", device));
  return count;
}

// "auto" is what the operators write where nothing was said; the CPUs of a pod make one rank.
int ranks_of_pod(const Variables& v) {
  const std::string nproc = v.text("PET_NPROC_PER_NODE");
  if (nproc == "auto" || nproc == "gpu") return std::max(1, gpus_seen(v));
  if (nproc == "cpu") return 1;
  return v.number_or("PET_NPROC_PER_NODE", 1, most_ranks, 1);
}

// A pod that starts nproc ranks, or one.
void read_pod(const Variables& v, Environment& here) {
  here.launcher = Launcher::kubernetes;
  here.to_start = ranks_of_pod(v);
  const char* of_node = v.has("PET_NODE_RANK") ? "PET_NODE_RANK" : "RANK";
  // Old operators count pods in WORLD_SIZE, new ones ranks: PET_NNODES is clear.
  const int nodes = v.has("PET_NNODES") ? v.number("PET_NNODES", 1, most_ranks)
                                        : v.number("WORLD_SIZE", 1, most_ranks);
  here.node_rank = v.number(of_node, 0, nodes - 1);
  here.world = nodes * here.to_start;
  here.rank = here.node_rank * here.to_start;
  here.local_world = here.to_start;
  here.token = v.first_of({"PET_RDZV_ID", "PET_MASTER_ADDR", "MASTER_ADDR"});
}

void read_torchrun(const Variables& v, Environment& here) {
  const bool own = v.text("BRAID_STORE") == "served";
  here.launcher = own ? Launcher::own : Launcher::torchrun;
  here.world = v.number("WORLD_SIZE", 1, most_ranks);
  here.rank = v.number("RANK", 0, here.world - 1);
  here.local_rank = v.number_or("LOCAL_RANK", 0, here.world - 1, 0);
  here.local_world = v.number_or("LOCAL_WORLD_SIZE", 1, here.world, here.world == 1 ? 1 : 0);
  here.node_rank =
      v.number_or("GROUP_RANK", 0, here.world - 1, here.local_world == here.world ? 0 : -1);
  here.store_served = own || v.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (own) here.run_number = v.number_or("BRAID_RUN_NUMBER", 1, most_ranks, 0);
  here.parent_is_launcher = v.has("TORCHELASTIC_RUN_ID");
  if (here.parent_is_launcher)  // the agent's store outlives a restart of the ranks
    here.token =
        fmt::format("{}.{}", v.text("TORCHELASTIC_RUN_ID"), v.text("TORCHELASTIC_RESTART_COUNT"));
}

void read_mpi(const Variables& v, Environment& here) {
  here.launcher = Launcher::mpirun;
  here.parent_is_launcher = true;
  here.world = v.number("OMPI_COMM_WORLD_SIZE", 1, most_ranks);
  here.rank = v.number("OMPI_COMM_WORLD_RANK", 0, here.world - 1);
  here.local_rank = v.number_or("OMPI_COMM_WORLD_LOCAL_RANK", 0, here.world - 1, 0);
  here.local_world = v.number_or("OMPI_COMM_WORLD_LOCAL_SIZE", 1, here.world, 0);
  // OMPI_COMM_WORLD_NODE_RANK counts the ranks of a host, not hosts.
  here.node_rank = here.local_world == here.world ? 0 : -1;
  const std::string job = v.first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  if (job.empty()) return;
  // Open MPI 4 draws these 128 bits for each job and gives them only to its ranks.
  const std::string drawn = v.text("OMPI_MCA_orte_precondition_transports");
  here.secret = !drawn.empty();
  here.token = fmt::format("{}.{}", job, drawn);
  here.master_port = port_of_job(job);
}

void read_slurm(const Variables& v, Environment& here) {
  here.launcher = Launcher::slurm;
  const char* tasks = v.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  here.world = v.number(tasks, 1, most_ranks);
  here.rank = v.number("SLURM_PROCID", 0, here.world - 1);
  here.local_rank = v.number_or("SLURM_LOCALID", 0, here.world - 1, 0);
  here.node_rank = v.number_or("SLURM_NODEID", 0, here.world - 1, -1);
  const auto counts =
      expand_counts(v.first_of({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}));
  const auto node = static_cast<size_t>(here.node_rank);
  here.local_world = here.node_rank >= 0 && node < counts.size() ? counts[node] : 0;
  // The hosts of the job may be more than those of the step, and begin with another.
  here.hosts =
      expand_hosts(v.first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}));
  here.master_port = port_of_job(v.text("SLURM_JOB_ID"));
  here.token = fmt::format("{}.{}.{}", v.text("SLURM_JOB_ID"), v.text("SLURM_STEP_ID"),
                           v.first_of({"SLURM_RESTART_COUNT"}));
}

void read_skypilot(const Variables& v, Environment& here) {
  here.launcher = Launcher::skypilot;
  here.hosts = expand_hosts(v.text("SKYPILOT_NODE_IPS"));
  const int nodes = v.number_or("SKYPILOT_NUM_NODES", 1, most_ranks,
                                std::max(1, static_cast<int>(here.hosts.size())));
  here.node_rank = v.number("SKYPILOT_NODE_RANK", 0, nodes - 1);
  here.to_start = std::max(1, v.number_or("SKYPILOT_NUM_GPUS_PER_NODE", 0, 1024, 1));
  here.world = nodes * here.to_start;
  here.rank = here.node_rank * here.to_start;
  here.local_world = here.to_start;
  here.master_port = port_of_job("");
  if (v.has("SKYPILOT_TASK_ID")) here.token = v.text("SKYPILOT_TASK_ID");
}

void read_launcher(const Variables& v, Environment& here) {
  const bool elastic = v.has("TORCHELASTIC_RUN_ID") || v.has("LOCAL_RANK") || v.has("BRAID_STORE");
  const bool pod = v.has("PET_NODE_RANK") || v.has("KUBERNETES_SERVICE_HOST");
  const bool torch = v.has_all({"RANK", "WORLD_SIZE"});
  if (torch && pod && !elastic) return read_pod(v, here);
  if (torch) return read_torchrun(v, here);
  if (v.has_all({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) return read_mpi(v, here);
  if (v.has("SLURM_STEP_ID") && v.has("SLURM_PROCID")) return read_slurm(v, here);
  if (v.has_all({"PET_NODE_RANK", "PET_NNODES"})) return read_pod(v, here);
  if (v.has("SKYPILOT_NODE_RANK")) return read_skypilot(v, here);
  if (v.has("SLURM_JOB_ID")) here.waiting_tasks = v.number_or("SLURM_NTASKS", 1, most_ranks, 0);
}

// What a user gave all ranks of the job and nobody else; "" if nothing.
std::string secret_of(const Variables& v) {
  const std::string file = v.text("BRAID_JOB_TOKEN_FILE");
  if (v.has("BRAID_JOB_TOKEN") || file.empty()) return v.text("BRAID_JOB_TOKEN");
  struct stat about = {};
  if (::stat(file.c_str(), &about) == 0 && (about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw ConfigError(
        {.what = fmt::format("the file {} of BRAID_JOB_TOKEN_FILE is open to others", file),
         .why = "who can read the token can join the job",
         .fix = fmt::format("chmod 600 {}, and make a new token: openssl rand -hex 16 "
                            "> {}",
                            file, file)});
  std::ifstream in(file);
  std::string token;
  in >> token;
  if (!token.empty()) return token;
  throw ConfigError({.what = fmt::format("no token in the file {} of BRAID_JOB_TOKEN_FILE", file),
                     .why = "its first word is the secret by which the ranks of a job know each "
                            "other",
                     .fix = fmt::format("(umask 077; openssl rand -hex 16 > {})", file)});
}

void read_meeting_place(const Variables& v, Environment& here) {
  if (here.world == 1) return;
  here.master_address = v.first_of({"MASTER_ADDR", "PET_MASTER_ADDR"});
  if (here.master_address.empty() && !here.hosts.empty()) here.master_address = here.hosts.front();
  if (here.master_address.empty() && here.local_world == here.world)
    here.master_address = "127.0.0.1";
  for (const char* name : {"PET_MASTER_PORT", "MASTER_PORT"})
    if (v.has(name)) here.master_port = v.number(name, 1, 65535);
  if (v.has("BRAID_STORE_SOCKET"))
    here.store_socket = v.number("BRAID_STORE_SOCKET", 3, most_ranks);
  if (const std::string secret = secret_of(v); !secret.empty()) {
    here.secret = true;
    // The ranks of torchrun may be started again beside the same store.
    here.token = v.has("TORCHELASTIC_RESTART_COUNT")
                     ? fmt::format("{}.{}", secret, v.text("TORCHELASTIC_RESTART_COUNT"))
                     : secret;
  }
  if (here.token.empty()) here.token = "open";
}

}  // namespace

std::string_view to_text(Launcher launcher) {
  constexpr std::string_view words[] = {"alone",  "braid --ranks", "torchrun", "kubernetes",
                                        "mpirun", "srun",          "skypilot"};
  return words[static_cast<size_t>(launcher)];
}

int port_of_job(std::string_view job_id) {
  size_t end = job_id.find_first_not_of("0123456789");
  if (end == std::string_view::npos) end = job_id.size();
  const std::string_view digits = job_id.substr(0, end);
  const auto last = whole_number(digits.substr(digits.size() - std::min<size_t>(digits.size(), 4)));
  if (last) return 15000 + *last;
  // Open MPI 5 gives its jobs names: two on one host are to meet at ports of their own.
  return job_id.empty() ? 12910
                        : 15000 + static_cast<int>(std::hash<std::string_view>()(job_id) % 10000);
}

Environment environment(const Lookup& lookup) {
  const Variables v(lookup);
  Environment here;
  read_launcher(v, here);
  read_meeting_place(v, here);
  here.job_id = v.text("SLURM_JOB_ID");
  here.visible_gpus = v.text("CUDA_VISIBLE_DEVICES");
  here.math_threads = whole_number(v.text("OMP_NUM_THREADS")).value_or(0);
  here.debug = v.text("TORCH_DISTRIBUTED_DEBUG");
  return here;
}

}  // namespace braid::launch
