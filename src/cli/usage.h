// SPDX-License-Identifier: BSD-3-Clause
// What is said of wrong flags and words: what, why and what to type.
#pragma once
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace braid::cli {

// The words behind the program's name, last one first, as CLI::App::parse takes them. `--set a=1
// b=2` becomes `--set a=1 --set b=2`.
std::vector<std::string> words_for_parser(int argc, const char* const* argv);

std::string usage_complaint(const CLI::App& app, const CLI::ParseError& error);

// Checks of numbers.
CLI::Validator above_zero();
CLI::Validator zero_or_more();

}  // namespace braid::cli
