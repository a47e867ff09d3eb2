// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "core/config_tree.h"

namespace braid {
namespace {

constexpr std::array<std::string_view, 10> kSections = {
    "model", "data", "train", "optimizer", "mesh", "report", "run", "seed", "checkpoint", "valid"};

struct ConfigSpec {
  std::string file;
  std::string name;  // "" if none was given
};

ConfigSpec split_spec(const std::string& spec) {
  const size_t slash = spec.rfind('/');
  const size_t colon = spec.rfind(':');
  const bool named = colon != spec.npos && (slash == spec.npos || colon > slash);
  if (!named || std::filesystem::is_regular_file(spec))
    return {spec, ""};  // a file may be called a:b.yaml
  if (colon + 1 == spec.size())
    throw ConfigError(
        {.what = fmt::format("no name follows the colon in {}", spec),
         .why = "file.yaml:name means one of the configs in the file",
         .fix = fmt::format("write {}, or a name after the colon", spec.substr(0, colon))});
  return {spec.substr(0, colon), spec.substr(colon + 1)};
}

std::vector<std::string> yaml_files_beside(const std::filesystem::path& file) {
  std::vector<std::string> names;
  std::error_code ignored;
  const auto dir = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  for (const auto& entry : std::filesystem::directory_iterator(dir, ignored))
    if (entry.path().extension() == ".yaml" || entry.path().extension() == ".yml")
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void complain_unreadable(const std::string& file, const std::string& cause) {
  const std::filesystem::path path = file;
  const std::vector<std::string> others = yaml_files_beside(path);
  const std::string near =
      nearest(path.filename().string(), others);  // folders alike would hide the difference
  std::string fix = "check the path";
  if (!near.empty() && near != path.filename()) {
    fix = fmt::format("did you mean {}?", (path.parent_path() / near).string());
  } else if (!others.empty()) {
    fix = fmt::format("configs in that folder: {}", fmt::join(others, ", "));
  }
  throw ConfigError({.what = fmt::format("cannot read the config {}: {}", file, cause),
                     .why = "a config is given as file.yaml or file.yaml:name",
                     .fix = fix});
}

ConfigNodePtr read_config_file(const std::string& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) complain_unreadable(file, "there is no such file");
  if (std::filesystem::is_directory(status)) complain_unreadable(file, "it is a folder");
  std::string yaml;
  try {
    yaml = read_text(file);
  } catch (const StorageError& failure) {
    complain_unreadable(file, failure.complaint().what);
  }
  return parse_tree(yaml, [&](int line) { return fmt::format("{}:{}", file, line); });
}

bool holds_anchors(std::string_view key) { return key.starts_with('.') || key.starts_with('_'); }

ConfigNodePtr without_anchor_holders(const ConfigNodePtr& root, const std::string& file) {
  auto clean = std::make_shared<ConfigNode>(*root);
  if (clean->kind == Config::Kind::null) clean->kind = Config::Kind::map;  // an empty file
  if (clean->kind != Config::Kind::map)
    throw ConfigError({.what = fmt::format("{} holds {}, not a map", file, shown(*clean)),
                       .why = "a config is a map of sections, or a map of named configs",
                       .fix = "start it with model: {name: mlp}",
                       .where = clean->where});
  std::erase_if(clean->entries, [](const ConfigEntry& entry) { return holds_anchors(entry.key); });
  return clean;
}

// Why a file is flat: the first top-level key that cannot be the name of a config; null if the file
// holds named configs.
const ConfigEntry* first_flat_key(const ConfigNode& root) {
  for (const ConfigEntry& entry : root.entries) {
    const bool section =
        std::find(kSections.begin(), kSections.end(), entry.key) != kSections.end();
    const bool holds =
        entry.value->kind == Config::Kind::map || entry.value->kind == Config::Kind::null;
    if (section || !holds) return &entry;
  }
  return nullptr;
}

bool has_names(const ConfigNode& root) {
  const auto is_map = [](const ConfigEntry& e) { return e.value->kind == Config::Kind::map; };
  return first_flat_key(root) == nullptr &&
         std::any_of(root.entries.begin(), root.entries.end(), is_map);
}

[[noreturn]] void complain_flat(const ConfigSpec& spec, const ConfigNode& root) {
  const ConfigEntry* flat = first_flat_key(root);
  throw ConfigError(
      {.what = fmt::format("{} holds one config, so there is no {} in it", spec.file, spec.name),
       .why = flat == nullptr
                  ? std::string("it is empty")
                  : fmt::format("its top level has {}, so it is not a file of named configs",
                                flat->key),
       .fix = fmt::format("use {} without a name", spec.file),
       .where = flat == nullptr ? root.where : flat->where});
}

[[noreturn]] void complain_unknown_name(const ConfigSpec& spec, const ConfigNode& root) {
  const std::vector<std::string> names = root.keys();
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  if (spec.name.empty())
    throw ConfigError(
        {.what = fmt::format("{} holds several configs and none of them is called base", spec.file),
         .why = "a file without :name means its config base",
         .fix = fmt::format("choose one: {}:{} (there are {})", spec.file, names.front(), list)});
  const std::string near = nearest(spec.name, names);
  throw ConfigError({.what = fmt::format("{} has no config called {}", spec.file, spec.name),
                     .why = fmt::format("its configs are {}", list),
                     .fix = near.empty() ? "choose one of them"
                                         : fmt::format("did you mean {}:{}?", spec.file, near)});
}

// A null value (a section without lines, `base:` alone) is an empty map.
ConfigNodePtr choose_config(const ConfigSpec& spec, const ConfigNodePtr& root) {
  if (!has_names(*root)) {
    if (!spec.name.empty()) complain_flat(spec, *root);
    return root;
  }
  const ConfigEntry* found = root->find(spec.name.empty() ? "base" : spec.name);
  if (found == nullptr) complain_unknown_name(spec, *root);
  if (found->value->kind == Config::Kind::map) return found->value;
  return std::make_shared<const ConfigNode>(
      ConfigNode{.kind = Config::Kind::map, .where = found->where});
}

std::pair<std::string, std::string> split_set(const std::string& set) {
  const size_t equals = set.find('=');
  std::string path = set.substr(0, std::min(equals, set.size()));
  while (path.ends_with(' ')) path.pop_back();
  const bool blank = path.find_first_of(" \t") != path.npos;
  if (equals == set.npos || blank || split_path(path).empty())
    throw ConfigError(
        {.what = fmt::format("--set {} is not a path, an equals sign and a value", set),
         .why = "the part before = names one setting, section by section",
         .fix = "--set path.key=value, for example --set train.steps=100"});
  return {path, set.substr(equals + 1)};
}

}  // namespace

Config::Config()
    : node_(std::make_shared<const ConfigNode>(ConfigNode{.kind = Kind::map})), path_(), where_() {}

Config::Config(ConfigNodePtr node, std::string path, std::string where)
    : node_(std::move(node)), path_(std::move(path)), where_(std::move(where)) {}

Config Config::load(const std::string& spec, const std::vector<std::string>& sets) {
  const ConfigSpec parts = split_spec(spec);
  const ConfigNodePtr root = without_anchor_holders(read_config_file(parts.file), parts.file);
  const ConfigNodePtr chosen = choose_config(parts, root);
  Config config(chosen, "", chosen->where);
  for (const std::string& set : sets) {
    const auto [path, yaml] = split_set(set);
    config.set(path, yaml);
  }
  return config;
}

Config Config::parse(std::string_view yaml, std::string_view origin) {
  ConfigNodePtr root =
      parse_tree(yaml, [&](int line) { return fmt::format("{}:{}", origin, line); });
  return Config(root, "", root->where);
}

std::vector<std::string> Config::names(const std::string& file) {
  const ConfigNodePtr root = without_anchor_holders(read_config_file(file), file);
  return has_names(*root) ? root->keys() : std::vector<std::string>{};
}

Config::Kind Config::kind() const { return node_->kind; }
bool Config::has(std::string_view key) const { return node_->find(key) != nullptr; }
std::vector<std::string> Config::keys() const { return node_->keys(); }
bool Config::quoted() const { return node_->quoted; }
std::string Config::where() const { return where_; }
std::string Config::path() const { return path_; }
std::string Config::to_yaml() const { return tree_to_yaml(*node_); }

size_t Config::size() const {
  return kind() == Kind::list ? node_->items.size() : node_->entries.size();
}

Config Config::at(std::string_view key) const {
  const std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  if (const ConfigEntry* entry = node_->find(key)) return Config(entry->value, path, entry->where);
  const std::string near = nearest(key, keys());
  throw ConfigError({.what = fmt::format("{} is missing", path),
                     .why = "it has no default",
                     .fix = near.empty()
                                ? fmt::format("write it into the config, or --set {}=value", path)
                                : fmt::format("did you mean {}, which is there?", near),
                     .where = where_});
}

Config Config::at(size_t index) const {
  if (kind() != Kind::list || index >= node_->items.size())
    throw ConfigError(
        {.what = fmt::format("{} has no item {}", path_.empty() ? "the config" : path_, index),
         .why = fmt::format("it is {}", kind() == Kind::list
                                            ? fmt::format("a list of {}", node_->items.size())
                                            : shown(*node_)),
         .fix = "write a list: [1, 2]",
         .where = where_});
  const ConfigNodePtr& item = node_->items[index];
  return Config(item, fmt::format("{}[{}]", path_, index), item->where);
}

const std::string& Config::text() const {
  if (kind() == Kind::scalar) return node_->text;
  throw ConfigError({.what = fmt::format("{} is a {}, not a single value",
                                         path_.empty() ? "the config" : path_, shown(*node_)),
                     .why = "one text or number is needed here",
                     .fix = fmt::format("write {}: value", path_.empty() ? "key" : path_),
                     .where = where_});
}

void Config::set(std::string_view path, std::string_view yaml) {
  const std::string given = fmt::format("--set {}={}", path, yaml);
  const std::vector<std::string> parts = split_path(path);
  if (parts.empty()) split_set(fmt::format("{}={}", path, yaml));  // complains
  ConfigNodePtr value;
  try {
    value = parse_tree(yaml, [&](int) { return std::string(given); });
  } catch (const ConfigError& error) {
    throw ConfigError({.what = fmt::format("the value of {} is not YAML", given),
                       .why = error.complaint().what,
                       .fix = fmt::format("put a text in quotes: --set '{}=\"{}\"'", path, yaml)});
  }
  node_ = with_value(node_, parts, value);
}

}  // namespace braid
