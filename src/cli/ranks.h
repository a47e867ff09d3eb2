// SPDX-License-Identifier: BSD-3-Clause
// --ranks N: the same command as N processes on this host.
#pragma once
#include <optional>

#include "braid/launch/environment.h"
#include "braid/launch/options.h"
#include "braid/train/folder.h"
#include "cli/command.h"

namespace braid::cli {

// 0: not given.
void add_ranks(CLI::App& command, int& ranks);

// Empty: this process is a rank itself and goes on. Else it was the launcher of `ranks` processes
// (or of as many as the environment says that a host should have), and this is their exit code.
// With `use` the launcher of a single host claims the run folder for its ranks; with launchers on
// several hosts rank 0 does.
std::optional<Exit> start_ranks(int ranks, launch::Environment& here,
                                const train::RunOptions& options,
                                std::optional<train::Use> use = std::nullopt);

}  // namespace braid::cli
