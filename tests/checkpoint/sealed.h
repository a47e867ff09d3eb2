// SPDX-License-Identifier: BSD-3-Clause
// Manifests that somebody has edited, with a hash that is right again.
#pragma once
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/hashed_file.h"
#include "checkpoint/manifest.h"
#include "support/command.h"

namespace braid::checkpoint {

inline nlohmann::json manifest_in(const std::filesystem::path& folder) {
  return nlohmann::json::parse(test::text_of(folder / manifest_name));
}

inline std::string sealed_text(nlohmann::json content) {
  using Json = nlohmann::json;
  const auto text = [&] { return content.dump(-1, ' ', false, Json::error_handler_t::replace); };
  if (!content.is_object()) return text();
  content.erase("xxh3");
  content["xxh3"] = xxh3_of(text());
  return text();
}

inline void seal(const std::filesystem::path& folder, const nlohmann::json& content) {
  std::ofstream(folder / manifest_name) << sealed_text(content);
}

}  // namespace braid::checkpoint
