// SPDX-License-Identifier: BSD-3-Clause
// The commands of `braid data` that look at given files.
#pragma once
#include "cli/command.h"

namespace braid::cli {

void add_data_check(CLI::App& data, Action& action);
void add_data_stats(CLI::App& data, Action& action);

}  // namespace braid::cli
