// SPDX-License-Identifier: BSD-3-Clause
// Environment variables that change how LibTorch, Gloo, NCCL and OpenMP behave or what they print.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace braid::cli {

struct DebugVariable {
  std::string name;
  std::string effect;                     // what it does, and who reads it
  std::string usual;                      // a value that is worth trying
  std::optional<std::string> value = {};  // here; unset: nobody has set it
};

std::vector<DebugVariable> debug_variables();  // in the order in which they are explained
void print_variables(bool all);                // false: those that are set here
nlohmann::json variables_json();               // all

}  // namespace braid::cli
