// SPDX-License-Identifier: BSD-3-Clause
// The tree behind Config. Nodes never change once built, so aliases, merges and copies share them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "braid/core/config.h"

namespace braid {

using ConfigNodePtr = std::shared_ptr<const ConfigNode>;

struct ConfigEntry {
  std::string key;
  std::string where;  // of the key: an alias stands here, what it means may stand elsewhere
  ConfigNodePtr value;
};

struct ConfigNode {
  Config::Kind kind = Config::Kind::null;
  std::string where = {};
  std::string text = {};                  // of a scalar
  bool quoted = false;                    // of a scalar
  std::vector<ConfigEntry> entries = {};  // of a map
  std::vector<ConfigNodePtr> items = {};  // of a list
  // With all that is below, an alias counted each time that it is used.
  int64_t weight = 1;  // values, and more for long texts
  int depth = 1;       // levels

  const ConfigEntry* find(std::string_view key) const;
  std::vector<std::string> keys() const;
};

// Sets weight and depth of a node whose children have theirs. Throws ConfigError for a tree that
// would take gigabytes when written out, or overflow the stack.
void measure(ConfigNode& node);

// "map", "list", "null" or the text of a scalar: what stands after `path =` in a message.
std::string shown(const ConfigNode& node);

// `where` turns a line (from 1) into what where() says. Throws ConfigError.
using ConfigPlace = std::function<std::string(int line)>;
ConfigNodePtr parse_tree(std::string_view yaml, const ConfigPlace& where);

std::vector<std::string> split_path(std::string_view path);  // empty if a part is empty
// `node` with `value` at the path; maps are created on the way. Throws ConfigError if something
// else is in the way.
ConfigNodePtr with_value(const ConfigNodePtr& node, const std::vector<std::string>& path,
                         const ConfigNodePtr& value);

std::string tree_to_yaml(const ConfigNode& node);
// A text as one YAML scalar: in quotes if it would read as something else.
std::string yaml_text(std::string_view text, std::string_view none = "");

}  // namespace braid
