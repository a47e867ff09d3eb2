// SPDX-License-Identifier: BSD-3-Clause
#include "cli/hugging_face_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "braid/core/fs.h"

namespace braid::cli {
namespace {

using nlohmann::json;

bool fits(const json& value, const int64_t*) { return value.is_number_integer(); }
bool fits(const json& value, const double*) { return value.is_number(); }
bool fits(const json& value, const bool*) { return value.is_boolean(); }

const char* kind_of(const int64_t*) { return "an integer"; }
const char* kind_of(const double*) { return "a number"; }
const char* kind_of(const bool*) { return "true or false"; }

}  // namespace

ConfigJson::ConfigJson(std::filesystem::path file) : file_(file.string()) {
  content_ = json::parse(read_text(file), nullptr, /*allow_exceptions=*/false);
  if (content_.is_object()) return;
  throw ConfigError({.what = fmt::format("{} is not a JSON object", file_),
                     .why = "it should describe the model of the weights beside it",
                     .fix = "copy it again, or give the model's config by --config"});
}

ConfigJson::ConfigJson(const ConfigJson& parent, const json& section, std::string prefix)
    : file_(parent.file_), prefix_(std::move(prefix)), content_(section) {}

const json& ConfigJson::find(JsonNames names) {
  static const json none;
  const json* found = &none;
  for (const char* name : names) {
    known_.insert(name);
    const auto entry = content_.find(name);
    if (found->is_null() && entry != content_.end()) found = &*entry;
  }
  return *found;
}

template <class T>
void ConfigJson::take_as(const char* key, T& value, JsonNames names, T usual) {
  const json& found = find(names);
  std::string name = *names.begin();
  for (const char* other : names)
    if (content_.contains(other) && &content_[other] == &found) name = other;
  if (found.is_null()) {
    value = usual;
    origins_[key] = fmt::format("no {}{}, which means {}", prefix_, name, json(usual).dump());
    return;
  }
  if (!fits(found, &value))
    throw ConfigError({.what = fmt::format("{}: {}{} = {}", file_, prefix_, name, found.dump()),
                       .why = fmt::format("it must be {}", kind_of(&value)),
                       .fix = "copy config.json of the model again"});
  value = found.get<T>();
  origins_[key] = fmt::format("{}{} = {}", prefix_, name, found.dump());
}

void ConfigJson::take(const char* key, int64_t& value, JsonNames names, int64_t usual) {
  take_as(key, value, names, usual);
}
void ConfigJson::take(const char* key, double& value, JsonNames names, double usual) {
  take_as(key, value, names, usual);
}
void ConfigJson::take(const char* key, bool& value, JsonNames names, bool usual) {
  take_as(key, value, names, usual);
}

void ConfigJson::require(const Required& rule) {
  const json& value = find({rule.key});
  if (value.is_null() || std::ranges::find(rule.allowed, value) != rule.allowed.end()) return;
  std::string text = value.dump();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  refuse(fmt::format("{} = {}", rule.key, text), rule.why);
}

void ConfigJson::ignore(const std::vector<const char*>& keys) {
  known_.insert(keys.begin(), keys.end());
}

void ConfigJson::refuse(const std::string& setting, const std::string& why) const {
  throw ConfigError({.what = fmt::format("{}: {}{} is not supported", file_, prefix_, setting),
                     .why = why,
                     .fix = "convert a model without it: braid would compute other numbers than "
                            "transformers"});
}

std::vector<std::string> ConfigJson::unknown() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : content_.items())
    if (!known_.contains(key)) keys.push_back(key);
  return keys;
}

}  // namespace braid::cli
