// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "braid/core/options.h"
#include "core/config_tree.h"

namespace braid {
namespace {

std::string value_yaml(bool value, const Rule&) { return value ? "true" : "false"; }
std::string value_yaml(int64_t value, const Rule&) { return fmt::format("{}", value); }
std::string value_yaml(double value, const Rule&) { return exact_text(value); }
std::string value_yaml(Bytes value, const Rule&) { return exact_text(value); }
std::string value_yaml(Seconds value, const Rule&) { return exact_text(value); }
std::string value_yaml(const std::string& value, const Rule& rule) {
  return yaml_text(value,
                   rule.one_of.empty() ? rule.none : "");  // a choice may well be the word none
}

template <class T>
std::string value_yaml(const std::optional<T>& value, const Rule& rule) {
  if (!rule.zero.empty() && value == T{}) return std::string(rule.zero);
  return value ? value_yaml(*value, rule) : std::string(rule.none.empty() ? "null" : rule.none);
}

template <class T>
std::string value_yaml(const std::vector<T>& values, const Rule& rule) {
  std::vector<std::string> parts;
  parts.reserve(values.size());
  for (const T& value : values) parts.push_back(value_yaml(value, rule));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string type_name(bool, const Rule&) { return "yes/no"; }
std::string type_name(int64_t, const Rule&) { return "integer"; }
std::string type_name(double, const Rule&) { return "number"; }
std::string type_name(const std::string&, const Rule&) { return "text"; }
std::string type_name(Bytes, const Rule&) { return "bytes"; }
std::string type_name(Seconds, const Rule&) { return "time"; }

template <class T>
std::string type_name(const std::optional<T>&, const Rule& rule) {
  if (!rule.zero.empty())
    return fmt::format("{}, {} or {}", type_name(T{}, rule), rule.zero, rule.none);
  return fmt::format("{} or {}", type_name(T{}, rule), rule.none);
}

template <class T>
std::string type_name(const std::vector<T>&, const Rule& rule) {
  return fmt::format("list of {}s", type_name(T{}, rule));
}

std::string dotted_path(const std::vector<std::string>& sections, std::string_view name) {
  if (sections.empty()) return std::string(name);
  return fmt::format("{}.{}", fmt::join(sections, "."), name);
}

}  // namespace

void WriteFields::visit(std::string_view name, Slot slot, std::string_view, const Rule& rule) {
  const std::string yaml = std::visit([&](auto* value) { return value_yaml(*value, rule); }, slot);
  config.set(dotted_path(path_, name), yaml);
}

void WriteFields::enter(std::string_view name, std::string_view) { path_.emplace_back(name); }

void WriteFields::leave() { path_.pop_back(); }

void ListFields::visit(std::string_view name, Slot slot, std::string_view help, const Rule& rule) {
  rows.push_back(std::visit(
      [&](auto* value) {
        return OptionRow{.path = dotted_path(path_, name),
                         .type = type_name(*value, rule),
                         .value = value_yaml(*value, rule),
                         .help = std::string(help),
                         .one_of = rule.one_of};
      },
      slot));
}

void ListFields::enter(std::string_view name, std::string_view) { path_.emplace_back(name); }

void ListFields::leave() { path_.pop_back(); }

}  // namespace braid
