// SPDX-License-Identifier: BSD-3-Clause
// A tree of settings from YAML, in which each value knows the file and line it came from.
//
//   Config config = Config::load("configs/vit.yaml:short", {"train.steps=10", "mesh.tensor=2"});
//   config.at("train").at("steps").text();   // "10"
//   config.at("model").where();              // "configs/vit.yaml:12"
//
// Anchors, aliases and `<<` merges (of a map or a list of maps) are resolved here: own keys win
// over merged ones, whole. A key with dots is a path below the map it stands in and changes that
// one value after the merge: `short: {<<: *base, train.steps: 128}`. A file of named configs is one
// whose top-level keys all hold maps and none of which is a section (model, data, ...); keys that
// start with a dot or an underscore only hold anchors. `file.yaml` alone is flat or means its
// config `base`.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid {

struct ConfigNode;

// A value: copies are cheap and set() on one does not show in another.
class Config {
 public:
  enum class Kind { null, scalar, list, map };

  Config();  // an empty map
  // "file.yaml", "file.yaml:name"; `sets` are "a.b=c" as of --set, applied last. Throws
  // ConfigError.
  static Config load(const std::string& spec, const std::vector<std::string>& sets = {});
  static Config parse(std::string_view yaml, std::string_view origin = "text");
  static std::vector<std::string> names(
      const std::string& file);  // of the named configs; empty if flat

  Kind kind() const;
  bool is_map() const { return kind() == Kind::map; }
  bool has(std::string_view key) const;
  Config at(std::string_view key) const;  // throws ConfigError if missing
  Config at(size_t index) const;          // of a list
  size_t size() const;                    // entries of a map or a list
  std::vector<std::string> keys() const;  // of a map, in file order
  const std::string& text() const;        // of a scalar, unquoted; throws ConfigError otherwise
  bool quoted() const;                    // a scalar written "as text"
  std::string where() const;              // "file.yaml:12" or "--set train.steps=10"
  std::string path() const;               // "train.steps"; "" at the root

  void set(std::string_view path,
           std::string_view yaml);  // creates maps on the way; `a.b=c` of --set
  std::string to_yaml() const;      // parses back to the same tree

 private:
  Config(std::shared_ptr<const ConfigNode> node, std::string path, std::string where);
  std::shared_ptr<const ConfigNode> node_;
  std::string path_;
  std::string where_;
};

}  // namespace braid
