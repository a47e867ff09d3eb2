// SPDX-License-Identifier: BSD-3-Clause
// What is said of wrong flags and words: what, why and what to type.
#pragma once
#include <string>

#include <CLI/CLI.hpp>

namespace braid::cli {

std::string usage_complaint(const CLI::App& app, const CLI::ParseError& error);

// Checks of numbers.
CLI::Validator above_zero();
CLI::Validator zero_or_more();

}  // namespace braid::cli
