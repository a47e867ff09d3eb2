// SPDX-License-Identifier: BSD-3-Clause
// Changing a tree and writing it as YAML.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "braid/core/error.h"
#include "braid/core/units.h"
#include "core/config_tree.h"

namespace braid {
namespace {

[[noreturn]] void complain_in_the_way(const std::vector<std::string>& path, size_t depth,
                                      const ConfigNode& there, const ConfigNode& value) {
  const std::vector<std::string> head(path.begin(),
                                      path.begin() + static_cast<std::ptrdiff_t>(depth));
  const std::string so_far = head.empty() ? "the config" : fmt::format("{}", fmt::join(head, "."));
  throw ConfigError({.what = fmt::format("{} cannot be set: {} = {} is not a map",
                                         fmt::join(path, "."), so_far, shown(there)),
                     .why = fmt::format("{} was given at {}", so_far, there.where),
                     .fix = fmt::format("set {} itself", so_far),
                     .where = value.where});
}

ConfigNodePtr put_below(const ConfigNodePtr& node, const std::vector<std::string>& path,
                        size_t depth, const ConfigNodePtr& value) {
  if (depth == path.size()) return value;
  const bool empty = node == nullptr || node->kind == Config::Kind::null;
  if (!empty && node->kind != Config::Kind::map) complain_in_the_way(path, depth, *node, *value);
  auto changed = empty ? std::make_shared<ConfigNode>() : std::make_shared<ConfigNode>(*node);
  if (empty) changed->where = value->where;
  changed->kind = Config::Kind::map;
  for (ConfigEntry& entry : changed->entries) {
    if (entry.key != path[depth]) continue;
    entry.value = put_below(entry.value, path, depth + 1, value);
    if (depth + 1 == path.size()) entry.where = value->where;
    measure(*changed);
    return changed;
  }
  changed->entries.push_back(
      {path[depth], value->where, put_below(nullptr, path, depth + 1, value)});
  measure(*changed);
  return changed;
}

bool reads_as_null(std::string_view text) {
  constexpr std::array<std::string_view, 6> words = {"", "~", "null", "Null", "NULL", "None"};
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool reads_as_bool(std::string_view text) {
  constexpr std::array<std::string_view, 8> words = {"true", "false", "yes", "no",
                                                     "on",   "off",   "y",   "n"};
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return std::find(words.begin(), words.end(), lower) != words.end();
}

// Only characters that mean nothing to YAML, in a block or in brackets.
bool is_plain_safe(std::string_view text) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const auto inner = [&](char c) {
    return is_word(c) || std::string_view("_./+-*=()^$@ ").find(c) != std::string_view::npos;
  };
  if (text.empty() || text.back() == ' ' || text == "<<") return false;
  const bool signed_start = text.size() > 1 &&
                            std::string_view("./_+-(").find(text[0]) != std::string_view::npos &&
                            (is_word(text[1]) || text[1] == '/' || text[1] == '.') && text != "..";
  return (is_word(text[0]) || signed_start) && !text.starts_with("..") &&
         std::all_of(text.begin(), text.end(), inner);
}

std::string in_quotes(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string scalar_yaml(const ConfigNode& node) {
  return node.quoted || !is_plain_safe(node.text) ? in_quotes(node.text) : node.text;
}

// A dotted key in quotes is no path when it is read again.
std::string key_yaml(const std::string& key) {
  const bool safe = is_plain_safe(key) && !reads_as_null(key) && key.find('.') == std::string::npos;
  return safe ? key : in_quotes(key);
}

// In brackets, on one line.
std::string flow_yaml(const ConfigNode& node) {
  std::vector<std::string> parts;
  switch (node.kind) {
    case Config::Kind::null:
      return "null";
    case Config::Kind::scalar:
      return scalar_yaml(node);
    case Config::Kind::list:
      for (const ConfigNodePtr& item : node.items) parts.push_back(flow_yaml(*item));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    case Config::Kind::map:
      for (const ConfigEntry& entry : node.entries)
        parts.push_back(fmt::format("{}: {}", key_yaml(entry.key), flow_yaml(*entry.value)));
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  return "";
}

void write_block(std::string& out, const ConfigNode& map, size_t indent) {
  for (const ConfigEntry& entry : map.entries) {
    out += std::string(indent, ' ') + key_yaml(entry.key) + ":";
    const bool block = entry.value->kind == Config::Kind::map && !entry.value->entries.empty();
    out += block ? "\n" : " " + flow_yaml(*entry.value) + "\n";
    if (block) write_block(out, *entry.value, indent + 2);
  }
}

}  // namespace

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    if (part.empty()) return {};
    parts.emplace_back(part);
    if (dot == path.npos) return parts;
    path.remove_prefix(dot + 1);
  }
}

ConfigNodePtr with_value(const ConfigNodePtr& node, const std::vector<std::string>& path,
                         const ConfigNodePtr& value) {
  constexpr size_t longest_path = 100;
  if (path.size() > longest_path)
    throw ConfigError(
        {.what = fmt::format("a path of {} names, {}.{}. ...", path.size(), path.front(), path[1]),
         .why = fmt::format("settings lie at most {} sections deep", longest_path),
         .fix = "see braid help config for the names of all settings",
         .where = value->where});
  return put_below(node, path, 0, value);
}

std::string tree_to_yaml(const ConfigNode& node) {
  if (node.kind != Config::Kind::map || node.entries.empty()) return flow_yaml(node) + "\n";
  std::string out;
  write_block(out, node, 0);
  return out;
}

std::string yaml_text(std::string_view text, std::string_view none) {
  const bool other =
      reads_as_null(text) || reads_as_bool(text) || parse_number(text) || text == none;
  return other || !is_plain_safe(text) ? in_quotes(text) : std::string(text);
}

}  // namespace braid
