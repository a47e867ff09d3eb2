// SPDX-License-Identifier: BSD-3-Clause
// braid help config: every key of a config with its type, default and meaning.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace braid::cli {
namespace {

struct HelpArguments {
  std::string filter;
  bool json = false;
};

ConfigError no_such_key(const std::string& key) {
  std::vector<std::string> names;
  for (const OptionRow& row : train::all_options()) {
    names.push_back(row.path);
    names.push_back(row.path.substr(0, row.path.find('.')));  // its section
  }
  const std::string near = nearest(key, names);
  return ConfigError({.what = fmt::format("no key of a config begins with {}", key),
                      .why = "a key is written as in a config, e.g. train.steps",
                      .fix = near.empty() ? "braid help config lists all"
                                          : fmt::format("did you mean {}?", near)});
}

Exit help_command(const HelpArguments& arguments) {
  nlohmann::json rows = nlohmann::json::array();
  bool any = false;
  for (const OptionRow& row : train::all_options()) {
    if (!row.path.starts_with(arguments.filter)) continue;
    any = true;
    if (arguments.json) {
      rows.push_back({{"path", row.path},
                      {"type", row.type},
                      {"default", row.value},
                      {"help", row.help},
                      {"one_of", row.one_of}});
      continue;
    }
    fmt::print("{:<34} {:<18} {}\n", row.path, row.value.empty() ? "\"\"" : row.value, row.help);
    if (!row.one_of.empty()) fmt::print("{:<53} one of {}\n", "", fmt::join(row.one_of, ", "));
  }
  if (!any) throw no_such_key(arguments.filter);
  if (arguments.json) fmt::print("{}\n", nlohmann::json{{"options", rows}}.dump());
  return Exit::ok;
}

}  // namespace

void add_help(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<HelpArguments>();
  CLI::App* command = app.add_subcommand("help", "explain the keys of a config");
  CLI::App* config =
      command->add_subcommand("config", "list every key with its default and meaning");
  command->require_subcommand(1);
  config
      ->add_option("key", arguments->filter,
                   "print only keys that begin with this text, e.g. train")
      ->type_name("KEY");
  add_json(*config, arguments->json);
  config->callback(
      [&action, arguments] { action = [arguments] { return help_command(*arguments); }; });
}

}  // namespace braid::cli
