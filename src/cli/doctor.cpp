// SPDX-License-Identifier: BSD-3-Clause
// braid doctor: is this machine ready, and what to do if not.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "braid/core/accelerator.h"
#include "braid/core/cpu.h"
#include "braid/core/units.h"
#include "braid/launch/environment.h"
#include "cli/command.h"
#include "cli/probe.h"

namespace braid::cli {
namespace {

struct Check {
  std::string name;
  bool good = true;
  bool needed = true;  // false: only some uses need it
  std::string found;
  std::string fix = {};
};

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

Exit doctor_command(bool json) {
  bool ready = true;
  nlohmann::json rows = nlohmann::json::array();
  const bool colour = launch::environment().stdout_is_tty;
  for (const Check& check : all_checks()) {
    ready = ready && (check.good || !check.needed);
    rows.push_back({{"name", check.name},
                    {"good", check.good},
                    {"needed", check.needed},
                    {"found", check.found},
                    {"fix", check.fix}});
    if (json) continue;
    const char* mark = check.good ? "ok" : check.needed ? "BAD" : "none";
    const char* paint = !colour        ? ""
                        : check.good   ? "\x1b[32m"
                        : check.needed ? "\x1b[31m"
                                       : "\x1b[33m";
    fmt::print("{}{:<5}{}{:<10} {}\n", paint, mark, colour ? "\x1b[0m" : "", check.name,
               check.found);
    if (!check.good) fmt::print("{:<16}fix: {}\n", "", check.fix);
  }
  if (json)
    fmt::print("{}\n", nlohmann::json{{"ready", ready}, {"checks", rows}}.dump());
  else
    fmt::print("{}\n", ready ? "this machine is ready" : "this machine is not ready");
  return ready ? Exit::ok : Exit::internal;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("doctor", "is this machine ready, and what to do if not");
  add_json(*command, *json);
  command->callback([&action, json] { action = [json] { return doctor_command(*json); }; });
}

}  // namespace braid::cli
