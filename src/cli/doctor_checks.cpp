// SPDX-License-Identifier: BSD-3-Clause
#include "cli/doctor_checks.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <thread>

#include "braid/core/accelerator.h"
#include "braid/core/cpu.h"
#include "braid/core/units.h"
#include "braid/launch/environment.h"
#include "cli/probe.h"

namespace braid::cli {
namespace {

Check check_torch() {
  const bool right = torch_version().starts_with("2.11.0");
  return {.name = "torch",
          .good = right,
          .found = fmt::format("{}, {} threads", torch_version(), at::get_num_threads()),
          .fix = "install torch==2.11.0, or run tools/setup"};
}

Check check_memory() {
  const int64_t bytes = memory_bytes();
  return {.name = "memory",
          .good = bytes > (int64_t{2} << 30),
          .found = fmt::format("{}, {} cores", to_text(Bytes{bytes}),
                               std::thread::hardware_concurrency()),
          .fix = "2 GiB or more are needed for the reference models"};
}

Check check_gpu() {
  const AcceleratorStatus& status = accelerator_status();
  if (status.device == nullptr)
    return {.name = "GPU",
            .good = false,
            .needed = false,
            .found = status.reason,
            .fix = "training runs on the CPU; for a GPU: make cuda, and a driver for CUDA 13"};
  return {.name = "GPU", .found = list_gpus()};
}

Check check_disk() {
  const Disk disk = disk_here();
  return {.name = "disk",
          .good = disk.writable && disk.free > (int64_t{1} << 30),
          .found = fmt::format("{} free here, {}", to_text(Bytes{disk.free}),
                               disk.writable ? "writable" : "not writable"),
          .fix = "free some space, or start in another folder"};
}

Check check_command(const std::string& name, const std::string& command, const std::string& fix) {
  const std::string line = first_line_of(command);
  return {.name = name,
          .good = !line.empty(),
          .needed = false,
          .found = line.empty() ? "not found" : line,
          .fix = fix};
}

Check check_port() {
  const int port = free_port();
  return {.name = "ports",
          .good = port > 0,
          .found = port > 0 ? fmt::format("loopback listens (tried {})", port) : "no port opens",
          .fix = "allow listening on loopback: ranks meet there"};
}

Check check_slurm() {
  const auto tasks = launch::variable("SLURM_NTASKS");
  const auto rank = launch::variable("SLURM_PROCID");
  Check check = check_command("SLURM", "sinfo --version", "only needed on a cluster that has it");
  if (tasks && *tasks != "1" && !rank)
    return {.name = "SLURM",
            .good = false,
            .found = fmt::format("inside a job of {} tasks, but not under srun", *tasks),
            .fix = "start with: srun braid train ..."};
  return check;
}

}  // namespace

std::vector<Check> all_checks() {
  return {
      {.name = "braid", .found = "0.1.0, built with " + compiler_version()},
      check_command("compiler", "c++ --version", "apt-get install g++ (only to build)"),
      check_torch(),
      check_memory(),
      {.name = "CPU", .found = avoid_broken_amx().empty() ? "no known fault" : avoid_broken_amx()},
      check_gpu(),
      {.name = "HDF5", .found = hdf5_version()},
      check_command("MPI", "mpirun --version",
                    "only for launching with mpirun: apt-get install openmpi-bin"),
      check_slurm(),
      check_port(),
      check_disk()};
}

}  // namespace braid::cli
