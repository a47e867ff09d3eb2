// SPDX-License-Identifier: BSD-3-Clause
// braid doctor: is this machine ready, and what to do if not.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "braid/launch/environment.h"
#include "cli/command.h"
#include "cli/doctor_checks.h"
#include "cli/doctor_variables.h"

namespace braid::cli {
namespace {

struct DoctorOptions {
  bool json = false;
  bool variables = false;
};

void print_check(const Check& check, bool colour) {
  const char* mark = check.good ? "ok" : check.needed ? "BAD" : "none";
  const char* paint = !colour        ? ""
                      : check.good   ? "\x1b[32m"
                      : check.needed ? "\x1b[31m"
                                     : "\x1b[33m";
  fmt::print("{}{:<5}{}{:<10} {}\n", paint, mark, colour ? "\x1b[0m" : "", check.name, check.found);
  if (!check.good) fmt::print("{:<16}fix: {}\n", "", check.fix);
}

Exit doctor_command(const DoctorOptions& options) {
  if (options.variables && !options.json) {
    print_variables(/*all=*/true);
    return Exit::ok;
  }
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
    if (!options.json) print_check(check, colour);
  }
  if (options.json) {
    const nlohmann::json all = {
        {"ready", ready}, {"checks", rows}, {"variables", variables_json()}};
    // Values of variables may be any bytes.
    fmt::print("{}\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return ready ? Exit::ok : Exit::internal;
  }
  print_variables(/*all=*/false);
  fmt::print("{}\n", ready ? "this machine is ready" : "this machine is not ready");
  return ready ? Exit::ok : Exit::internal;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "check whether this machine is ready, and say what to do if not");
  command->add_flag("--variables", options->variables,
                    "list environment variables that help to find faults");
  add_json(*command, options->json);
  command->callback(
      [&action, options] { action = [options] { return doctor_command(*options); }; });
}

}  // namespace braid::cli
