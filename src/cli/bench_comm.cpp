// SPDX-License-Identifier: BSD-3-Clause
// braid bench comm: latency and bandwidth of every collective over a real group.
#include <fmt/format.h>

#include <filesystem>

#include "braid/launch/environment.h"
#include "braid/plan/calibrate.h"
#include "braid/train/job.h"
#include "cli/bench.h"
#include "cli/bench_comm.h"
#include "cli/ranks.h"

namespace braid::cli {
namespace {

int64_t size_of(const char* flag, const std::string& text) {
  const std::optional<Bytes> bytes = parse_bytes(text);
  if (bytes && bytes->count >= 4) return bytes->count;
  throw ConfigError({.what = fmt::format("{} {} is not a size of a message", flag, text),
                     .why = "a message has 4 bytes or more",
                     .fix = fmt::format("{} \"1 KiB\"", flag)});
}

train::RunOptions comm_run(const CommArguments& arguments) {
  train::RunOptions options;
  options.run.name = std::filesystem::path(arguments.dir).filename().string();
  options.run.dir = std::filesystem::path(arguments.dir).parent_path().string();
  if (!arguments.device.empty()) options.train.device = arguments.device;
  options.train.local_batch = 1;
  options.launch.backend = arguments.backend;
  return options;
}

// Ranks on one host measure the links inside a node, on several those between nodes.
bool on_one_host(const launch::Environment& here) {
  return here.local_world == here.world || (here.hosts.size() == 1 && here.local_world == 0);
}

Exit comm_command(const CommArguments& arguments) {
  plan::CommOptions options;
  options.smallest = size_of("--smallest", arguments.smallest);
  options.largest = size_of("--largest", arguments.largest);
  options.repetitions = arguments.repetitions;
  check_output(arguments);
  const train::RunOptions run = comm_run(arguments);
  launch::Environment here = launch::environment();
  train::RunOptions started = run;
  started.run.dir = arguments.dir;  // the logs of the ranks lie in it
  if (const auto ended = start_ranks(arguments.ranks, here, started)) return *ended;
  if (here.world < 2)
    throw ConfigError(
        {.what = "a single rank has no other rank to talk to",
         .why = "links are measured between ranks",
         .fix = "braid bench comm --ranks 4, or start it with srun, mpirun, torchrun"});
  train::Job job(run, here);
  return job.watched([&] {
    options.device = bench_device(arguments.device);
    if (options.device.is_cuda())
      options.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(job.ranks().gpu));
    if (here.rank == 0 && !arguments.json) options.progress = progress_line("comm");
    const auto points = plan::measure_comm(job.ranks().world, options);
    const plan::Link link = plan::fit_link(points, here.world);
    if (here.rank != 0) return Exit::ok;
    const bool one_host = on_one_host(here);
    const std::string which = one_host ? "inside" : "between";
    const std::string written = update_cluster(arguments, link, here, one_host);
    print_comm(points, link, {.which = which, .ranks = here.world, .json = arguments.json});
    if (!written.empty() && !arguments.json) fmt::print("wrote {}\n", written);
    return Exit::ok;
  });
}

}  // namespace

void add_bench_comm(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<CommArguments>();
  CLI::App* command = bench.add_subcommand(
      "comm", "measure latency and bandwidth of every collective between ranks");
  add_ranks(*command, arguments->ranks);
  command->add_option("--device", arguments->device, "device of the tensors: cuda or cpu")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--backend", arguments->backend, "backend: auto, gloo, nccl or mpi")
      ->check(CLI::IsMember({"auto", "gloo", "nccl", "mpi"}))
      ->capture_default_str();
  command->add_option("--smallest", arguments->smallest, "size of the smallest message")
      ->capture_default_str();
  command->add_option("--largest", arguments->largest, "size of the largest message")
      ->capture_default_str();
  command->add_option("--repetitions", arguments->repetitions, "repetitions of each message")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--cluster", arguments->cluster, "cluster file whose link is replaced");
  command->add_option("-o,--out", arguments->out, "write the cluster to this file instead")
      ->type_name("FILE");
  command->add_option("--dir", arguments->dir, "folder for the logs of the ranks")
      ->capture_default_str();
  add_json(*command, arguments->json);
  command->footer(
      "Ranks on one host measure the links inside a node; ranks on several hosts (started by srun, "
      "mpirun or torchrun) measure the links between nodes. busbw is the rate on a link: algbw "
      "times 2(n-1)/n for all_reduce and (n-1)/n for the other ring collectives.");
  command->callback(
      [&action, arguments] { action = [arguments] { return comm_command(*arguments); }; });
}

}  // namespace braid::cli
