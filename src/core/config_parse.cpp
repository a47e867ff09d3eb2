// SPDX-License-Identifier: BSD-3-Clause
// YAML events to a tree, with anchors, `<<` merges and dotted keys resolved on the way.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/units.h"
#include "core/config_tree.h"

namespace braid {
namespace {

using Kind = Config::Kind;

bool is_core_tag(const std::string& tag) {
  return tag.empty() || tag == "?" || tag == "!" || tag.starts_with("tag:yaml.org,2002:");
}

// A map or list whose end has not come yet.
struct OpenNode {
  ConfigNode node;
  YAML::anchor_t anchor = 0;
  std::optional<ConfigEntry> key = {};  // of a map: read, its value has not come yet
  bool key_quoted = false;
  std::unordered_set<std::string> keys = {};  // of all entries so far
  std::vector<ConfigEntry> own = {};          // of a map, in file order
  std::vector<ConfigEntry> dotted = {};       // own keys that are paths
  std::optional<ConfigEntry> merge = {};      // own `<<`
};

class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const ConfigPlace& where) : where_(where) {}

  ConfigNodePtr root() const { return root_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ == 0) return;
    throw ConfigError({.what = "a second YAML document starts here",
                       .why = "a config file is one document; several configs are named maps in it",
                       .fix = "remove the ---, or check the indentation of this line",
                       .where = place(mark)});
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    finish({.kind = Kind::null, .where = place(mark)}, anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    const bool quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!quoted && value == "None") return OnNull(mark, anchor);  // as Python writes it
    finish({.kind = Kind::scalar, .where = place(mark), .text = value, .quoted = quoted}, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      throw ConfigError(
          {.what = "an alias refers to the map or list that contains it",
           .why = "the tree would never end",
           .fix = "move the anchor (&name) to a map that is complete before this line",
           .where = place(mark)});
    add(found->second, place(mark));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open_.push_back({.node = {.kind = Kind::list, .where = place(mark)}, .anchor = anchor});
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open_.push_back({.node = {.kind = Kind::map, .where = place(mark)}, .anchor = anchor});
  }
  void OnMapEnd() override {
    OpenNode& map = open_.back();
    Places places = merge_into(map);
    for (const ConfigEntry& entry : map.own) {
      const auto [place, fresh] = places.try_emplace(entry.key, map.node.entries.size());
      if (fresh)
        map.node.entries.push_back(entry);
      else
        map.node.entries[place->second] = entry;
    }
    apply_dotted(map);
    close();
  }

 private:
  std::string place(const YAML::Mark& mark) const { return where_(mark.line + 1); }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (is_core_tag(tag)) return;
    throw ConfigError({.what = fmt::format("the YAML tag {} is not known", tag),
                       .why = "a config holds texts, numbers, lists and maps",
                       .fix = "remove the tag",
                       .where = place(mark)});
  }

  void finish(ConfigNode node, YAML::anchor_t anchor) {
    measure(node);
    const std::string where = node.where;
    const auto value = std::make_shared<const ConfigNode>(std::move(node));
    if (anchor != YAML::NullAnchor) anchors_[anchor] = value;
    add(value, where);
  }

  void close() {
    OpenNode done = std::move(open_.back());
    open_.pop_back();
    finish(std::move(done.node), done.anchor);
  }

  // A value has come: it is the root, an item of a list, a key, or the value of the last key.
  void add(const ConfigNodePtr& value, const std::string& where) {
    if (open_.empty()) {
      root_ = value;
    } else if (open_.back().node.kind == Kind::list) {
      open_.back().node.items.push_back(value);
    } else if (!open_.back().key) {
      read_key(open_.back(), *value, where);
    } else {
      ConfigEntry entry = std::move(*open_.back().key);
      open_.back().key.reset();
      entry.value = value;
      add_entry(open_.back(), std::move(entry));
    }
  }

  void read_key(OpenNode& map, const ConfigNode& key, const std::string& where) const {
    if (key.kind != Kind::scalar || key.text.empty())
      throw ConfigError({.what = fmt::format("a {} stands where a key is needed", shown(key)),
                         .why = "keys are names",
                         .fix = "write name: value",
                         .where = where});
    map.key = ConfigEntry{key.text, where, nullptr};
    map.key_quoted = key.quoted;
  }

  void add_entry(OpenNode& map, ConfigEntry entry) const {
    if (entry.key == "<<" && !map.key_quoted) {
      if (map.merge) complain_twice(*map.merge, entry, "give one << a list: <<: [*a, *b]");
      map.merge = std::move(entry);
      return;
    }
    if (!map.keys.insert(entry.key).second)
      complain_twice(first_of(map, entry.key), entry, "remove one of the two lines");
    (is_path(map, entry) ? map.dotted : map.own).push_back(std::move(entry));
  }

  static const ConfigEntry& first_of(const OpenNode& map, const std::string& key) {
    const auto same = [&](const ConfigEntry& entry) { return entry.key == key; };
    const auto own = std::find_if(map.own.begin(), map.own.end(), same);
    return own != map.own.end() ? *own : *std::find_if(map.dotted.begin(), map.dotted.end(), same);
  }

  [[noreturn]] static void complain_twice(const ConfigEntry& first, const ConfigEntry& second,
                                          std::string fix) {
    throw ConfigError({.what = fmt::format("the key {} is there twice in one map (first at {})",
                                           second.key, first.where),
                       .why = "one of the two values would be lost in silence",
                       .fix = std::move(fix),
                       .where = second.where});
  }

  // At the top of a file a dotted key that holds a map is the name of a config: `gpt2.small:
  // {...}`.
  bool is_path(const OpenNode& map, const ConfigEntry& entry) const {
    if (map.key_quoted || entry.key.find('.') == std::string::npos) return false;
    if (open_.size() == 1 && entry.value->kind == Kind::map) return false;
    return !split_path(entry.key).empty();
  }

  using Places = std::unordered_map<std::string, size_t>;  // of a map's keys among its entries

  // The first map of a list wins; own keys are put over all of them later.
  static Places merge_into(OpenNode& map) {
    Places places;
    if (!map.merge) return places;
    const ConfigEntry& merge = *map.merge;
    std::vector<ConfigNodePtr> sources = {merge.value};
    if (merge.value->kind == Kind::list) sources = merge.value->items;
    for (const ConfigNodePtr& source : sources) {
      if (source->kind != Kind::map)
        throw ConfigError(
            {.what = fmt::format("<< cannot merge {}, which is not a map", shown(*source)),
             .why = "<< takes a map or a list of maps",
             .fix = "write <<: *name, where &name marks a map",
             .where = merge.where});
      for (const ConfigEntry& entry : source->entries)
        if (places.try_emplace(entry.key, map.node.entries.size()).second)
          map.node.entries.push_back(entry);
    }
    return places;
  }

  // Each changes the tree once more.
  static void check_dotted(const OpenNode& map) {
    constexpr size_t most = 1000;
    if (map.dotted.size() <= most) return;
    throw ConfigError(
        {.what = fmt::format("a map has {} dotted keys, {} is the first", map.dotted.size(),
                             map.dotted.front().key),
         .why = fmt::format("dotted keys change single values after a merge; at most {} of them "
                            "are read",
                            most),
         .fix = "write the values into sections: train: {steps: 10}",
         .where = map.dotted.front().where});
  }

  static void apply_dotted(OpenNode& map) {
    check_dotted(map);
    for (const ConfigEntry& entry : map.dotted) {
      std::vector<std::string> path = split_path(entry.key);
      for (const ConfigEntry& own : map.own)
        if (own.key == path.front())
          throw ConfigError(
              {.what = fmt::format("{} and {} (at {}) set the same value", entry.key, own.key,
                                   own.where),
               .why = "a dotted key changes what << brings; here one would hide the other",
               .fix = fmt::format("write it inside of {}", own.key),
               .where = entry.where});
      auto value = std::make_shared<ConfigNode>(*entry.value);
      value->where = entry.where;
      auto whole = std::make_shared<const ConfigNode>(std::move(map.node));
      map.node = *with_value(whole, path, value);
    }
  }

  ConfigPlace where_;
  std::vector<OpenNode> open_;
  std::map<YAML::anchor_t, ConfigNodePtr> anchors_;  // complete ones only
  ConfigNodePtr root_;
  int documents_ = 0;
};

}  // namespace

ConfigNodePtr parse_tree(std::string_view yaml, const ConfigPlace& where) {
  std::istringstream stream{std::string(yaml)};
  TreeBuilder builder(where);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    throw ConfigError(
        {.what = fmt::format("this is not YAML: {}", error.msg),
         .why = "the text could not be read as YAML",
         .fix = "look at this line and the one before: indentation (spaces, no tabs), "
                "brackets, \"quotes\" around texts that start with *, &, @, % or hold ': '",
         .where = where(line)});
  }
  if (builder.root() != nullptr) return builder.root();
  return std::make_shared<const ConfigNode>(ConfigNode{.where = where(1)});
}

void measure(ConfigNode& node) {
  constexpr int64_t most_values = 1'000'000;
  constexpr int deepest = 500;
  constexpr size_t text_of_a_value = 256;
  node.weight = 1 + static_cast<int64_t>(node.text.size() / text_of_a_value);
  node.depth = 1;
  const auto add = [&](const ConfigNode& child) {
    node.weight += child.weight;
    node.depth = std::max(node.depth, child.depth + 1);
  };
  for (const ConfigNodePtr& item : node.items) add(*item);
  for (const ConfigEntry& entry : node.entries) add(*entry.value);
  if (node.weight <= most_values && node.depth <= deepest) return;
  throw ConfigError(
      {.what = node.depth > deepest
                   ? fmt::format("a {} is nested {} levels deep", shown(node), node.depth)
                   : fmt::format("a {} holds more than {} values", shown(node),
                                 with_commas(most_values)),
       .why =
           "each use of an alias (*name) counts all values of its anchor; real configs have a few "
           "hundred values in a few levels",
       .fix = "remove aliases that hold aliases, or split the file",
       .where = node.where});
}

const ConfigEntry* ConfigNode::find(std::string_view key) const {
  for (const ConfigEntry& entry : entries)
    if (entry.key == key) return &entry;
  return nullptr;
}

std::vector<std::string> ConfigNode::keys() const {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const ConfigEntry& entry : entries) names.push_back(entry.key);
  return names;
}

std::string shown(const ConfigNode& node) {
  switch (node.kind) {
    case Kind::null:
      return "null";
    case Kind::scalar:
      return node.text.empty() ? "\"\"" : node.text;
    case Kind::list:
      return "list";
    case Kind::map:
      return "map";
  }
  return "";
}

}  // namespace braid
