// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/options.h"

namespace braid {
namespace {

// What a value is called in a message, and what such a value looks like.
struct TypeWords {
  std::string_view noun;
  std::string_view rule;
};

TypeWords words_of(bool) { return {"yes or no", "it takes true or false (also yes, no, on, off)"}; }
TypeWords words_of(int64_t) { return {"an integer", "an integer looks like 30000, 30_000 or 3e4"}; }
TypeWords words_of(double) { return {"a number", "a number looks like 0.001, 1e-3 or 1_000"}; }
TypeWords words_of(const std::string&) { return {"a text", "one text is needed here"}; }
TypeWords words_of(Bytes) {
  return {"a number of bytes", "bytes look like 1048576, 25 MB (10^6) or 16 GiB (2^30)"};
}
TypeWords words_of(Seconds) { return {"a time", "a time looks like 90, 90s, 5m, 1h30m or 2d"}; }

bool parse_word(const std::string& text, bool& value) {
  std::string lower = text;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  value = lower == "true" || lower == "yes" || lower == "on";
  return value || lower == "false" || lower == "no" || lower == "off";
}

template <class T>
bool assign(const std::optional<T>& parsed, T& value) {
  if (parsed) value = *parsed;
  return parsed.has_value();
}
bool parse_word(const std::string& text, int64_t& value) {
  return assign(parse_integer(text), value);
}
bool parse_word(const std::string& text, double& value) {
  return assign(parse_number(text), value);
}
bool parse_word(const std::string& text, Bytes& value) { return assign(parse_bytes(text), value); }
bool parse_word(const std::string& text, Seconds& value) {
  return assign(parse_seconds(text), value);
}
bool parse_word(const std::string& text, std::string& value) {
  value = text;
  return true;
}

std::string shown_value(const Config& value) {
  switch (value.kind()) {
    case Config::Kind::scalar:
      return value.text().empty() ? "\"\"" : value.text();
    case Config::Kind::null:
      return "null";
    case Config::Kind::list:
    case Config::Kind::map:
      break;
  }
  std::string yaml = value.to_yaml();
  while (yaml.ends_with('\n')) yaml.pop_back();
  return value.is_map() ? "a map" : yaml;
}

// One value of a field on its way into the slot.
struct Reading {
  Config value;
  std::string_view help;
  const Rule& rule;
  std::string_view or_none = {};  // the word that an optional takes as well

  std::string given() const { return fmt::format("{} = {}", value.path(), shown_value(value)); }
  Reading of(Config item) const { return {std::move(item), help, rule, or_none}; }
};

[[noreturn]] void complain_type(const Reading& reading, const TypeWords& words) {
  const std::string none = reading.or_none.empty() ? "" : fmt::format(" or {}", reading.or_none);
  throw ConfigError({.what = fmt::format("{} is not {}{}", reading.given(), words.noun, none),
                     .why = std::string(words.rule),
                     .fix = fmt::format("set {} ({}) to {}{}", reading.value.path(), reading.help,
                                        words.noun, none),
                     .where = reading.value.where()});
}

// Bounds from above are either a share of one or far beyond what is used.
std::string bound_reason(std::string_view words, double bound) {
  constexpr double large = 1000;
  return words == "at most" && bound >= large
             ? "; more than that cannot be held in memory or counted"
             : "";
}

void check_bound(const Reading& reading, bool holds, std::string_view words, double bound) {
  if (holds) return;
  const std::string rule = fmt::format("{} {}", words, bound);
  throw ConfigError({.what = fmt::format("{} must be {}", reading.given(), rule),
                     .why = fmt::format("{} is: {}{}", reading.value.path(), reading.help,
                                        bound_reason(words, bound)),
                     .fix = fmt::format("set {} to a value {}", reading.value.path(), rule),
                     .where = reading.value.where()});
}

void check_number(const Reading& reading, double number) {
  check_bound(reading, number >= reading.rule.at_least, "at least", reading.rule.at_least);
  check_bound(reading, number > reading.rule.above, "above", reading.rule.above);
  check_bound(reading, number <= reading.rule.at_most, "at most", reading.rule.at_most);
}

void check_words(const Reading& reading, const std::string& text) {
  const std::vector<std::string>& words = reading.rule.one_of;
  if (words.empty() || std::find(words.begin(), words.end(), text) != words.end()) return;
  const std::string near = nearest(text, words);
  throw ConfigError(
      {.what = fmt::format("{} is not known", reading.given()),
       .why = fmt::format("{} is one of {}", reading.value.path(), fmt::join(words, ", ")),
       .fix = near.empty() ? fmt::format("set {} to one of them", reading.value.path())
                           : fmt::format("did you mean {}?", near),
       .where = reading.value.where()});
}

void check_value(const Reading&, bool) {}
void check_value(const Reading& r, int64_t value) { check_number(r, static_cast<double>(value)); }
void check_value(const Reading& r, double value) { check_number(r, value); }
void check_value(const Reading& r, Bytes value) {
  check_number(r, static_cast<double>(value.count));
}
void check_value(const Reading& r, Seconds value) { check_number(r, value.count); }
void check_value(const Reading& r, const std::string& value) { check_words(r, value); }

template <class T>
T read_one(const Reading& reading) {
  T value{};
  const bool scalar = reading.value.kind() == Config::Kind::scalar;
  if (!scalar || !parse_word(reading.value.text(), value)) complain_type(reading, words_of(T{}));
  check_value(reading, value);
  return value;
}

template <class T>
void read_into(const Reading& reading, T& slot) {
  slot = read_one<T>(reading);
}

// null empties a text; of a choice it means the word `none`, if there is one.
void read_into(const Reading& reading, std::string& slot) {
  const auto& words = reading.rule.one_of;
  const bool has_none = std::find(words.begin(), words.end(), "none") != words.end();
  if (reading.value.kind() == Config::Kind::null && (words.empty() || has_none)) {
    slot = words.empty() ? "" : "none";
  } else {
    slot = read_one<std::string>(reading);
  }
}

std::string words_for_none(const Rule& rule) {
  return rule.zero.empty() ? std::string(rule.none) : fmt::format("{} or {}", rule.zero, rule.none);
}

template <class T>
void read_into(const Reading& reading, std::optional<T>& slot) {
  const Config& value = reading.value;
  const bool plain = value.kind() == Config::Kind::scalar && !value.quoted();
  if ((plain && value.text() == reading.rule.none) || value.kind() == Config::Kind::null) {
    slot.reset();
    return;
  }
  if (plain && !reading.rule.zero.empty() && value.text() == reading.rule.zero) {
    slot = T{};
    return;
  }
  Reading inner = reading.of(value);
  const std::string words = words_for_none(reading.rule);
  inner.or_none = words;
  slot = read_one<T>(inner);
}

template <class T>
void read_into(const Reading& reading, std::vector<T>& slot) {
  std::vector<T> values;
  if (reading.value.kind() == Config::Kind::list) {
    for (size_t i = 0; i < reading.value.size(); ++i)
      values.push_back(read_one<T>(reading.of(reading.value.at(i))));
  } else if (reading.value.kind() != Config::Kind::null) {
    values.push_back(read_one<T>(reading));  // one value is a list of one
  }
  slot = std::move(values);
}

std::string joined_path(const std::string& parent, std::string_view name) {
  return parent.empty() ? std::string(name) : fmt::format("{}.{}", parent, name);
}

void check_section(const Config& config) {
  const bool section = config.is_map() || config.kind() == Config::Kind::null;
  if (section) return;
  const std::string path = config.path().empty() ? "the config" : config.path();
  throw ConfigError({.what = fmt::format("{} = {} is not a section", path, shown_value(config)),
                     .why = "a section is a map of keys and values",
                     .fix = fmt::format("write {}: {{key: value}}", path),
                     .where = config.where()});
}

}  // namespace

struct ReadFields::Level {
  std::optional<Config> config;  // empty if the section is absent
  std::string path;
  std::vector<std::string> known = {};

  void complain_of_unknown() const {
    if (!config) return;
    for (const std::string& key : config->keys()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string near = nearest(key, known);
      const std::string section = path.empty() ? "the top level" : path;
      throw ConfigError(
          {.what = fmt::format("unknown key {}", joined_path(path, key)),
           .why = fmt::format("nothing reads it, so it would be ignored in silence; {} has no {}",
                              section, key),
           .fix = near.empty()
                      ? fmt::format("the keys of {} are {}", section, fmt::join(known, ", "))
                      : fmt::format("did you mean {}?", joined_path(path, near)),
           .where = config->at(key).where()});
    }
  }
};

ReadFields::ReadFields(const Config& config) {
  check_section(config);
  levels_.push_back({config, config.path()});
}

ReadFields::~ReadFields() = default;

void ReadFields::finish() { levels_.front().complain_of_unknown(); }

void ReadFields::visit(std::string_view name, Slot slot, std::string_view help, const Rule& rule) {
  Level& level = levels_.back();
  level.known.emplace_back(name);
  if (!level.config || !level.config->has(name)) return;
  const Reading reading{level.config->at(name), help, rule};
  std::visit([&](auto* target) { read_into(reading, *target); }, slot);
}

void ReadFields::enter(std::string_view name, std::string_view) {
  Level& level = levels_.back();
  level.known.emplace_back(name);
  Level inner{std::nullopt, joined_path(level.path, name)};
  if (level.config && level.config->has(name)) {
    inner.config = level.config->at(name);
    check_section(*inner.config);
  }
  levels_.push_back(std::move(inner));
}

void ReadFields::leave() {
  levels_.back().complain_of_unknown();
  levels_.pop_back();
}

}  // namespace braid
