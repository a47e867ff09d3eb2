// SPDX-License-Identifier: BSD-3-Clause
// The parts of braid bench.
#pragma once
#include <string>

#include <c10/core/Device.h>

#include "cli/command.h"

namespace braid::cli {

c10::Device bench_device(const std::string& word);  // cuda, cpu; empty: a GPU where there is one
void add_bench_comm(CLI::App& bench, Action& action);

}  // namespace braid::cli
