// SPDX-License-Identifier: BSD-3-Clause
#include "cli/ranks.h"

#include <fmt/format.h>

#include "braid/launch/spawn.h"

namespace braid::cli {
namespace {

ConfigError ranks_of_ranks(int ranks, const launch::Environment& here) {
  return ConfigError(
      {.what = fmt::format("--ranks {} in a process that {} started as rank {} of {}", ranks,
                           launch::to_text(here.launcher), here.rank, here.world),
       .why = "the launcher has started all ranks already",
       .fix = "leave out --ranks, or do not start with the launcher"});
}

ConfigError mpi_without_mpirun(int ranks) {
  return ConfigError(
      {.what = fmt::format("launch.backend = mpi in {} ranks that braid starts", ranks),
       .why = "MPI knows only the ranks that its own launcher has started",
       .fix = fmt::format("start with: mpirun -n {} braid train ..., without --ranks; "
                          "or --set launch.backend=auto",
                          ranks)});
}

}  // namespace

void add_ranks(CLI::App& command, int& ranks) {
  command
      .add_option("--ranks", ranks,
                  "number of processes to start on this host (default: 1, or as the launcher says)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
}

std::optional<Exit> start_ranks(int ranks, launch::Environment& here,
                                const train::RunOptions& options, std::optional<train::Use> use) {
  const bool rank_already = here.world > 1 && here.to_start == 1;
  if (ranks > 0 && here.world > 1 && ranks != here.to_start) throw ranks_of_ranks(ranks, here);
  if (ranks == 1) here.waiting_tasks = 0;  // one rank was asked for
  if (ranks == 0) ranks = here.to_start;
  if (ranks == 1 || rank_already) return std::nullopt;
  if (options.launch.backend == "mpi") throw mpi_without_mpirun(ranks);
  const bool one_host = here.world <= ranks;
  train::RunFolder folder;
  if (use && one_host) folder = train::RunFolder(options, *use);
  if (!folder.note().empty()) fmt::print(stderr, "braid: {}\n", folder.note());
  folder.hold_in_children();
  const train::RunOptions numbered = train::numbered(options, folder.number());
  return static_cast<Exit>(
      launch::spawn({.ranks = ranks,
                     .command = launch::own_command(),
                     .log_dir = train::run_dir(numbered) + "/logs",
                     .run_number = use && one_host ? static_cast<int>(folder.number()) : 0,
                     .here = here,
                     .launch = options.launch}));
}

}  // namespace braid::cli
