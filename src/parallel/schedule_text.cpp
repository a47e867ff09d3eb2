// SPDX-License-Identifier: BSD-3-Clause
// Schedules as text and YAML.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

constexpr std::array<std::string_view, 11> act_letters = {"F",  "B",  "I", "W", "SA", "RA",
                                                          "SG", "RG", "G", "R", "U"};

[[noreturn]] void refuse_word(const Config& config, const std::string& word, const char* why) {
  throw ConfigError(
      {.what = fmt::format("{} = {} is no action", config.path(), word),
       .why = why,
       .fix =
           "write F3@1 for the forward pass of micro-batch 3 on stage 1; other letters: B, I, W, "
           "SA, RA, SG, RG, G, R, U",
       .where = config.where()});
}

int number_in(const Config& config, const std::string& word, std::string_view digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
    refuse_word(config, word, "an action is letters, the micro-batch and, behind @, the stage");
  return value;
}

// "F3@1"; without @ the rank's only stage.
Action action_from(const Config& config, const std::vector<int>& stages) {
  const std::string& word = config.text();
  const size_t digits = word.find_first_of("0123456789@");
  const std::string_view head = std::string_view(word).substr(0, digits);
  const auto* found = std::find(act_letters.begin(), act_letters.end(), head);
  if (found == act_letters.end() || digits == std::string::npos)
    refuse_word(config, word, "its letters or its micro-batch are not known");
  const size_t mark = std::min(word.find('@'), word.size());
  Action action;
  action.act = static_cast<Act>(found - act_letters.begin());
  action.micro = number_in(config, word, std::string_view(word).substr(digits, mark - digits));
  if (mark < word.size())
    action.stage = number_in(config, word, std::string_view(word).substr(mark + 1));
  else if (stages.size() == 1)
    action.stage = stages.front();
  else
    refuse_word(config, word, "a rank with several stages says which one");
  return action;
}

constexpr std::array<std::string_view, 6> file_keys = {"name",   "ranks",   "stages",
                                                       "micros", "rank_of", "lists"};

void check_keys(const Config& config) {
  for (const std::string& key : config.keys()) {
    if (std::find(file_keys.begin(), file_keys.end(), key) != file_keys.end()) continue;
    const std::string near = nearest(key, {file_keys.begin(), file_keys.end()});
    throw ConfigError({.what = fmt::format("unknown key {} of a schedule", key),
                       .why = fmt::format("known are {}", fmt::join(file_keys, ", ")),
                       .fix = near.empty() ? "take it out" : fmt::format("write {}", near),
                       .where = config.at(key).where()});
  }
}

int count_from(const Config& config, int at_least) {
  const std::string& text = config.text();
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr int at_most = 4'000'000;
  if (error != std::errc() || end != text.data() + text.size() || value < at_least ||
      value > at_most)
    throw ConfigError({.what = fmt::format("{} = {}", config.path(), text),
                       .why = fmt::format("it is a whole number from {} to {}", at_least, at_most),
                       .fix = "write such a number",
                       .where = config.where()});
  return value;
}

// A key that must hold a list.
Config list_from(const Config& config) {
  if (config.kind() == Config::Kind::list) return config;
  throw ConfigError({.what = fmt::format("{} is not a list", config.path()),
                     .why = "it has an entry for each stage, rank or action",
                     .fix = "write it as [a, b, ...]",
                     .where = config.where()});
}

// Everything but the lists.
Schedule head_from(const Config& config) {
  Schedule schedule;
  schedule.name = config.has("name") ? config.at("name").text() : "own";
  schedule.ranks = count_from(config.at("ranks"), 1);
  schedule.stages = config.has("stages") ? count_from(config.at("stages"), 1) : schedule.ranks;
  schedule.micros = count_from(config.at("micros"), 1);
  if (!config.has("rank_of"))
    for (int s = 0; s < schedule.stages; ++s) schedule.rank_of.push_back(s % schedule.ranks);
  else
    for (size_t i = 0; i < list_from(config.at("rank_of")).size(); ++i)
      schedule.rank_of.push_back(count_from(config.at("rank_of").at(i), 0));
  return schedule;
}

bool has_messages(const Schedule& schedule) {
  for (const std::vector<Action>& list : schedule.lists)
    for (const Action& action : list)
      if (sends(action.act) || receives(action.act)) return true;
  return false;
}

// The stage is left out where the rank has only one.
std::vector<std::string> words_of(const Schedule& schedule, size_t rank, bool all) {
  const bool one = schedule.stages_of(static_cast<int>(rank)).size() == 1;
  std::vector<std::string> words;
  for (const Action& action : schedule.lists[rank])
    if (all || computes(action.act) || action.act == Act::update)
      words.push_back(one ? fmt::format("{}{}", letters(action.act), action.micro)
                          : word_of(action));
  return words;
}

// A YAML list in lines of at most 100 characters.
std::string wrapped(const std::vector<std::string>& words) {
  std::string text = "  - [";
  size_t begin = 0;  // of the line
  for (const std::string& word : words) {
    const bool first = &word == &words.front();
    const bool wraps = text.size() - begin + word.size() + 4 > 100;
    text += first ? "" : wraps ? ",\n     " : ", ";
    if (wraps) begin = text.size() - 5;
    text += word;
  }
  return text + "]\n";
}

std::string quoted_name(const std::string& name) {
  std::string text = "'";
  for (const char c : name) text += c == '\'' ? std::string("''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string_view letters(Act act) { return act_letters.at(static_cast<size_t>(act)); }

std::string word_of(const Action& action) {
  return fmt::format("{}{}@{}", letters(action.act), action.micro, action.stage);
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (size_t r = 0; r < schedule.lists.size(); ++r)
    text += fmt::format("rank {}: {}\n", r, fmt::join(words_of(schedule, r, false), " "));
  return text;
}

std::string to_yaml(const Schedule& schedule) {
  std::string text = fmt::format(
      "# F3@1: forward of micro-batch 3 on stage 1. B backward, or split: I of the input, W of the "
      "weights.\n"
      "# SA, RA send and receive an activation, SG, RG a gradient; G, R gather and release "
      "weights; "
      "U update.\n"
      "name: {}\nranks: {}\nstages: {}\nmicros: {}\nrank_of: [{}]\nlists:\n",
      quoted_name(schedule.name), schedule.ranks, schedule.stages, schedule.micros,
      fmt::join(schedule.rank_of, ", "));
  for (size_t r = 0; r < schedule.lists.size(); ++r) text += wrapped(words_of(schedule, r, true));
  return text;
}

Schedule schedule_from(const Config& config) {
  check_keys(config);
  Schedule schedule = head_from(config);
  const Config lists = list_from(config.at("lists"));
  for (size_t r = 0; r < lists.size(); ++r) {
    const std::vector<int> stages = schedule.stages_of(static_cast<int>(r));
    std::vector<Action>& list = schedule.lists.emplace_back();
    const Config words = list_from(lists.at(r));
    for (size_t i = 0; i < words.size(); ++i) list.push_back(action_from(words.at(i), stages));
  }
  if (!has_messages(schedule)) {
    check_computing(schedule);
    place_messages(schedule);
  }
  check(schedule);
  return schedule;
}

}  // namespace braid::parallel
