// SPDX-License-Identifier: BSD-3-Clause
// A config.json whose keys are taken one by one, so that those that nobody asked for are known.
//
//   ConfigJson from("gpt2/config.json");
//   from.take("heads", options.heads, {"n_head", "num_attention_heads"}, 12);
//   from.require({.key = "add_cross_attention", .allowed = {false}, .why = "..."});
#pragma once
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "braid/core/error.h"

namespace braid::cli {

using JsonNames = std::initializer_list<const char*>;  // one setting has several in old files

// A setting that changes the model's output, and the values that braid can represent.
struct Required {
  const char* key;
  std::vector<nlohmann::json> allowed;  // null or absent is always allowed
  const char* why;
};

class ConfigJson {
 public:
  explicit ConfigJson(std::filesystem::path file);  // throws ConfigError
  ConfigJson(const ConfigJson& parent, const nlohmann::json& section, std::string prefix);

  // The value under the first of `names` that is there and not null; else null.
  const nlohmann::json& find(JsonNames names);
  // Fills `value`, or sets it to `usual`, which transformers takes where the key is absent. `key`
  // is braid's name of the setting.
  void take(const char* key, int64_t& value, JsonNames names, int64_t usual);
  void take(const char* key, double& value, JsonNames names, double usual);
  void take(const char* key, bool& value, JsonNames names, bool usual);
  void require(const Required& rule);
  void ignore(const std::vector<const char*>& keys);  // known, and without effect on the output

  [[noreturn]] void refuse(const std::string& setting, const std::string& why) const;
  const std::string& file() const { return file_; }
  const std::map<std::string, std::string>& origins() const { return origins_; }
  std::vector<std::string> unknown() const;

 private:
  template <class T>
  void take_as(const char* key, T& value, JsonNames names, T usual);

  std::string file_, prefix_;
  nlohmann::json content_;
  std::set<std::string> known_;
  std::map<std::string, std::string> origins_;
};

}  // namespace braid::cli
