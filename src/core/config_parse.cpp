// SPDX-License-Identifier: BSD-3-Clause
// YAML events to a tree, with anchors, `<<` merges and dotted keys resolved on the way.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "braid/core/error.h"
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
  std::vector<ConfigEntry> own = {};      // of a map, in file order
  std::vector<ConfigEntry> dotted = {};   // own keys that are paths
  std::optional<ConfigEntry> merge = {};  // own `<<`
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
    merge_into(map);
    for (const ConfigEntry& entry : map.own) put(map.node, entry);
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
    for (const auto* list : {&map.own, &map.dotted})
      for (const ConfigEntry& other : *list)
        if (other.key == entry.key) complain_twice(other, entry, "remove one of the two lines");
    (is_path(map, entry) ? map.dotted : map.own).push_back(std::move(entry));
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

  static void put(ConfigNode& map, const ConfigEntry& entry) {
    for (ConfigEntry& there : map.entries) {
      if (there.key != entry.key) continue;
      there = entry;
      return;
    }
    map.entries.push_back(entry);
  }

  // The first map of a list wins; own keys are put over all of them later.
  static void merge_into(OpenNode& map) {
    if (!map.merge) return;
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
        if (map.node.find(entry.key) == nullptr) map.node.entries.push_back(entry);
    }
  }

  static void apply_dotted(OpenNode& map) {
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
