// SPDX-License-Identifier: BSD-3-Clause
#include "cli/doctor_variables.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "braid/launch/environment.h"

namespace braid::cli {

std::vector<DebugVariable> debug_variables() {
  std::vector<DebugVariable> list = {
      {"MASTER_ADDR", "host of rank 0, where all ranks meet", "the first host of the job"},
      {"MASTER_PORT", "port of rank 0's store on that host", "29500"},
      {"OMP_NUM_THREADS", "CPU threads of a rank; ranks of one host share its cores",
       "cores / ranks"},
      {"GOMP_SPINCOUNT",
       "how long threads wait awake for each other, 100 a microsecond; braid's "
       "own value is for cores that other programs use, too",
       "3000"},
      {"OMP_WAIT_POLICY",
       "active: threads always wait awake, for cores of one's own; passive: never", "not set"},
      {"GLOO_SOCKET_IFNAME", "network interface of Gloo (CPU tensors)", "eth0"},
      {"NCCL_SOCKET_IFNAME", "network interface of NCCL's sockets", "eth0, or ^lo,docker0"},
      {"NCCL_IB_HCA", "InfiniBand adapters that NCCL may use", "mlx5_0,mlx5_1"},
      {"LOGLEVEL", "what torchrun itself logs", "DEBUG"},
      {"TORCH_CPP_LOG_LEVEL", "what LibTorch's C++ side logs, connections included", "INFO"},
      {"TORCH_DISTRIBUTED_DEBUG",
       "DETAIL: ranks compare every collective before it runs, and a difference is named (slow)",
       "DETAIL"},
      {"NCCL_DEBUG", "what NCCL logs: rings, transports, errors", "INFO"},
      {"NCCL_DEBUG_SUBSYS", "parts of NCCL that log", "INIT,NET,GRAPH"},
      {"NCCL_DEBUG_FILE", "file of NCCL's log; %h is the host, %p the process", "nccl.%h.%p"},
      {"TORCH_NCCL_TRACE_BUFFER_SIZE", "NCCL calls that the flight recorder keeps", "2000"},
      {"TORCH_NCCL_DUMP_ON_TIMEOUT", "1: a timeout writes the flight recorder to a file", "1"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0: a lost NCCL rank is a hang; else the process ends",
       "1"},
      {"TORCH_NCCL_DESYNC_DEBUG", "1: a timeout says which ranks are out of step (slower)", "1"},
      {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "seconds until NCCL's own watchdog ends the process",
       "600"},
      {"CUDA_LAUNCH_BLOCKING",
       "1: every kernel is waited for, so errors name the right line (slow)", "1"},
      {"CUBLAS_WORKSPACE_CONFIG", ":4096:8 makes matrix products the same in every run", ":4096:8"},
      {"PYTORCH_CUDA_ALLOC_CONF",
       "settings of the GPU allocator; expandable_segments fights fragmentation",
       "expandable_segments:True"},
  };
  for (DebugVariable& variable : list) variable.value = launch::variable(variable.name.c_str());
  return list;
}

void print_variables(bool all) {
  for (const DebugVariable& variable : debug_variables()) {
    if (!all && !variable.value) continue;
    fmt::print("{:<5}{}{}\n", variable.value ? "set" : "-", variable.name,
               variable.value ? "=" + *variable.value : "");
    fmt::print("{:<16}{}\n", "", variable.effect);
    if (!variable.value) fmt::print("{:<16}usual: {}\n", "", variable.usual);
  }
}

nlohmann::json variables_json() {
  nlohmann::json rows = nlohmann::json::array();
  for (const DebugVariable& variable : debug_variables())
    rows.push_back({{"name", variable.name},
                    {"set", variable.value.has_value()},
                    {"value", variable.value.value_or("")},
                    {"effect", variable.effect},
                    {"usual", variable.usual}});
  return rows;
}

}  // namespace braid::cli
