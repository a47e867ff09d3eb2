// SPDX-License-Identifier: BSD-3-Clause
#include "cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "braid/core/error.h"

namespace braid::cli {
namespace {

const auto any_command = [](const CLI::App*) { return true; };
const auto any_option = [](const CLI::Option*) { return true; };

// The command that the words named.
struct Named {
  const CLI::App* command = nullptr;
  std::string words;  // "data check"; empty: none was named

  std::string typed() const { return words.empty() ? "braid" : "braid " + words; }
  std::string help() const { return typed() + " --help"; }
  std::string has_no() const { return words.empty() ? "there is no" : words + " has no"; }
};

Named named_command(const CLI::App& app) {
  Named named{&app, ""};
  while (!named.command->get_subcommands().empty()) {
    named.command = named.command->get_subcommands().back();
    named.words += (named.words.empty() ? "" : " ") + named.command->get_name();
  }
  return named;
}

std::vector<std::string> commands_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* other : command.get_subcommands(any_command))
    names.push_back(other->get_name());
  return names;
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options(any_option))
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// As the help calls it: CONFIG, DIR.
std::string label_of(const CLI::Option& option) {
  return option.get_positional() ? option.get_type_name() : option.get_name();
}

std::vector<std::string> positionals_of(const CLI::App& command) {
  std::vector<std::string> labels;
  for (const CLI::Option* option : command.get_options(any_option))
    if (option->get_positional()) labels.push_back(label_of(*option));
  return labels;
}

std::string hint(const std::string& word, const std::vector<std::string>& names,
                 const Named& named) {
  const std::string near = nearest(word, names);
  return near.empty() ? fmt::format("see {}", named.help())
                      : fmt::format("did you mean {}? See {}", near, named.help());
}

Complaint unknown_word(const Named& named, const std::string& word) {
  const std::vector<std::string> commands = commands_of(*named.command);
  if (word.starts_with('-')) {
    const std::string flag = word.substr(0, word.find('='));
    return {.what = fmt::format("{} flag {}", named.has_no(), flag),
            .why = "what nothing reads would be ignored in silence",
            .fix = hint(flag, flags_of(*named.command), named)};
  }
  if (!commands.empty())
    return {.what = fmt::format("{} command {}", named.has_no(), word),
            .why = fmt::format("the commands are {}", fmt::join(commands, ", ")),
            .fix = hint(word, commands, named)};
  const std::vector<std::string> labels = positionals_of(*named.command);
  return {.what = fmt::format("{} does not know what to do with \"{}\"", named.words, word),
          .why = labels.empty() ? "it takes flags only"
                                : fmt::format("besides flags it takes {}", fmt::join(labels, " ")),
          .fix = fmt::format("leave it out; what holds blanks needs quotes; see {}", named.help())};
}

Complaint missing_command(const Named& named) {
  return {.what = named.words.empty() ? "a command is needed"
                                      : fmt::format("{} needs a command", named.words),
          .why = fmt::format("the commands are {}", fmt::join(commands_of(*named.command), ", ")),
          .fix = fmt::format("see {}", named.help())};
}

Complaint missing_option(const Named& named, const CLI::Option& option) {
  const std::string label = label_of(option);
  return {.what = fmt::format("{} needs {}", named.words, label),
          .why = fmt::format("{}: {}", label, option.get_description()),
          .fix = fmt::format("{} {}; see {}", named.typed(),
                             fmt::join(positionals_of(*named.command), " "), named.help())};
}

// What a flag that the message names is for.
std::string meaning_in(const std::string& message, const CLI::App& command) {
  for (const CLI::Option* option : command.get_options(any_option))
    for (const std::string& name : option->get_lnames())
      for (const char* end : {":", " "})
        if (message.find("--" + name + end) != std::string::npos)
          return fmt::format("--{}: {}", name, option->get_description());
  return "";
}

Complaint wrong_value(const Named& named, const std::string& message) {
  return {.what = named.words.empty() ? message : fmt::format("{}: {}", named.words, message),
          .why = meaning_in(message, *named.command),
          .fix = fmt::format("see {}", named.help())};
}

Complaint complaint_of(const Named& named, const CLI::ParseError& error) {
  for (const std::string& word : named.command->remaining())
    if (word != "--") return unknown_word(named, word);
  if (dynamic_cast<const CLI::RequiredError*>(&error) == nullptr)
    return wrong_value(named, error.what());
  for (const CLI::Option* option : named.command->get_options(any_option))
    if (option->get_required() && option->count() == 0) return missing_option(named, *option);
  return missing_command(named);
}

CLI::Validator number_that(const char* name, const char* rule, bool (*holds)(double)) {
  return {[rule, holds](std::string& text) {
            double number = 0;
            const bool good = CLI::detail::lexical_cast(text, number) && holds(number);
            return good ? std::string() : fmt::format("{} is not {}", text, rule);
          },
          name};
}

// train.steps=10: a path of names, an equals sign and a value. Not runs/a=1.yaml.
bool is_setting(std::string_view word) {
  const std::string_view key = word.substr(0, word.find('='));
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  };
  return key.size() < word.size() && !key.empty() && key.front() != '.' &&
         std::all_of(key.begin(), key.end(), in_name);
}

}  // namespace

std::vector<std::string> words_for_parser(int argc, const char* const* argv) {
  std::vector<std::string> words;
  bool settings = false;  // what looks like one belongs to the last --set
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool more = settings && is_setting(word);
    if (more) words.emplace_back("--set");
    words.push_back(word);
    if (word == "--set" && i + 1 < argc) words.emplace_back(argv[++i]);
    settings = more || word == "--set" || word.starts_with("--set=");
  }
  std::reverse(words.begin(), words.end());
  return words;
}

std::string usage_complaint(const CLI::App& app, const CLI::ParseError& error) {
  return explain(complaint_of(named_command(app), error));
}

CLI::Validator above_zero() {
  return number_that("POSITIVE", "a number above 0", [](double number) { return number > 0; });
}

CLI::Validator zero_or_more() {
  return number_that("NONNEGATIVE", "a number of 0 or more",
                     [](double number) { return number >= 0; });
}

}  // namespace braid::cli
