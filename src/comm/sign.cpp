// SPDX-License-Identifier: BSD-3-Clause
#include "comm/sign.h"

#include <nlohmann/json.hpp>

namespace braid::comm {
namespace {

// Texts of programs may hold bytes that are no UTF-8: they are replaced, not refused.
std::string sign_dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string to_text(const Sign& sign) {
  return sign_dump({{"doing", static_cast<int>(sign.doing)},
                    {"time", sign.time},
                    {"what", sign.what},
                    {"last", sign.last},
                    {"reason", sign.reason},
                    {"told", sign.told},
                    {"call", sign.call},
                    {"group", sign.group},
                    {"number", sign.number},
                    {"peers", sign.peers},
                    {"seconds", sign.seconds},
                    {"counts", sign.counts}});
}

Sign sign_of(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {.doing = static_cast<Doing>(json.at("doing").get<int>()),
          .time = json.at("time"),
          .what = json.at("what"),
          .last = json.at("last"),
          .reason = json.at("reason"),
          .told = json.at("told"),
          .call = json.at("call"),
          .group = json.at("group"),
          .number = json.at("number"),
          .peers = json.at("peers").get<std::vector<int>>(),
          .seconds = json.at("seconds"),
          .counts = json.at("counts").get<std::map<std::string, int64_t>>()};
}

std::string to_text(const Alarm& alarm) {
  return sign_dump(
      {{"rank", alarm.rank}, {"cause", static_cast<int>(alarm.cause)}, {"seconds", alarm.seconds}});
}

Alarm alarm_of(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {.rank = json.at("rank"),
          .cause = static_cast<Cause>(json.at("cause").get<int>()),
          .seconds = json.at("seconds")};
}

}  // namespace braid::comm
