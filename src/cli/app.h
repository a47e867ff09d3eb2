// SPDX-License-Identifier: BSD-3-Clause
// The command line as a whole.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace braid::cli {

std::unique_ptr<CLI::App> make_app(Action& action);
std::vector<std::string> flag_list(const CLI::App& app);  // "train --resume", ...: frozen by a test
int run(int argc, char** argv);                           // the process's exit code

}  // namespace braid::cli
