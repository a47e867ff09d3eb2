// SPDX-License-Identifier: BSD-3-Clause
#include "comm/sign.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace braid::comm {
namespace {

// Texts of programs may hold bytes that are no UTF-8: they are replaced, not refused.
std::string sign_dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

constexpr size_t longest_sign = size_t{1} << 20;

// Texts come from other processes: what cannot be read must not end this one.
template <class Value, class Read>
std::optional<Value> sign_read(const std::string& text, const Read& read) {
  if (text.size() > longest_sign) return std::nullopt;
  try {
    return read(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
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

std::optional<Sign> sign_of(const std::string& text) {
  return sign_read<Sign>(text, [](const nlohmann::json& json) -> std::optional<Sign> {
    const int doing = json.at("doing").get<int>();
    if (doing < 0 || doing > static_cast<int>(Doing::done)) return std::nullopt;
    return Sign{.doing = static_cast<Doing>(doing),
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
  });
}

std::string to_text(const Alarm& alarm) {
  return sign_dump(
      {{"rank", alarm.rank}, {"cause", static_cast<int>(alarm.cause)}, {"seconds", alarm.seconds}});
}

std::optional<Alarm> alarm_of(const std::string& text, int ranks) {
  return sign_read<Alarm>(text, [ranks](const nlohmann::json& json) -> std::optional<Alarm> {
    const int rank = json.at("rank").get<int>(), cause = json.at("cause").get<int>();
    if (rank < 0 || rank >= ranks || cause < 0 || cause > static_cast<int>(Cause::no_progress))
      return std::nullopt;
    return Alarm{.rank = rank, .cause = static_cast<Cause>(cause), .seconds = json.at("seconds")};
  });
}

std::string printable(std::string text) {
  const auto controls = [](char letter) {
    return (static_cast<unsigned char>(letter) < 0x20 && letter != '\n') || letter == 0x7f;
  };
  std::replace_if(text.begin(), text.end(), controls, '?');
  return text;
}

}  // namespace braid::comm
