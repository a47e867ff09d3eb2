// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/expected.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "braid/core/error.h"
#include "braid/core/regular_file.h"
#include "braid/core/units.h"
#include "core/json.h"

namespace braid::train {
namespace {

constexpr double allowed = 0.05;       // of the planned number
constexpr int64_t steps_left_out = 3;  // caches fill, kernels are chosen
constexpr size_t steps_looked_at = 8;

double off_by(double real, double planned) { return real / planned - 1; }

std::string leaves(const char* what, const std::string& real, const std::string& planned,
                   double share) {
  return fmt::format("{} deviates from the plan: {} instead of {} ({:+.0f} %; plan.json)", what,
                     real, planned, 100 * share);
}

Expected expected_of(const nlohmann::json& json) {
  Expected expected;
  expected.device = json.at("device").get<std::string>();
  expected.layout = json.at("layout").get<std::string>();
  expected.world = integer_of(json.at("gpus"), "gpus");
  expected.step_seconds = json.at("step_seconds").get<double>();
  for (const nlohmann::json& rank : json.at("ranks"))
    expected.ranks.push_back({.name = rank.at("name").get<std::string>(),
                              .bytes = integer_of(rank.at("bytes"), "bytes"),
                              .moment = rank.at("moment").get<std::string>()});
  return expected;
}

}  // namespace

std::optional<Expected> read_expected(const std::filesystem::path& dir) {
  const std::filesystem::path file = dir / "plan.json";
  if (!std::filesystem::exists(file)) return std::nullopt;
  const auto no_plan = [&](const std::exception& error) {
    return DataError({.what = fmt::format("{} is no plan: {}", file.string(), json_fault(error)),
                      .why = "it is what `braid plan CONFIG --leave` wrote",
                      .fix = fmt::format("write it again, or rm {}", file.string())});
  };
  try {
    return expected_of(parse_json(read_regular(file)));
  } catch (const nlohmann::json::exception& error) {
    throw no_plan(error);
  } catch (const JsonFault& error) {
    throw no_plan(error);
  }
}

std::shared_ptr<memory::Ledger> ledger_for_plan(const std::filesystem::path& dir,
                                                c10::Device device) {
  if (!device.is_cpu()) return nullptr;  // its allocator counts
  try {
    const std::optional<Expected> expected = read_expected(dir);
    if (expected && expected->device == "cpu") return std::make_shared<memory::Ledger>();
  } catch (const Error&) {  // the trainer says it
  }
  return nullptr;
}

PlanWatch::PlanWatch(std::optional<Expected> expected, PlanPlace place)
    : expected_(std::move(expected)), place_(std::move(place)) {
  watches_ = expected_.has_value() && refusal().empty();
}

std::string PlanWatch::refusal() const {
  if (!expected_ || (expected_->device == place_.device && expected_->world == place_.world))
    return "";
  const auto who = [](int64_t ranks, const std::string& device) {
    return fmt::format("{} rank{} on {}", ranks, ranks == 1 ? "" : "s", device);
  };
  return fmt::format("plan.json is for {}, this is a run of {}: they are not compared",
                     who(expected_->world, expected_->device), who(place_.world, place_.device));
}

void PlanWatch::step(double seconds) {
  if (!watches_ || ++seen_ <= steps_left_out || due()) return;
  seconds_.push_back(seconds);
}

bool PlanWatch::due() const { return watches_ && seconds_.size() >= steps_looked_at; }

std::vector<std::string> PlanWatch::look(int64_t bytes) {
  if (!due()) return {};
  std::vector<std::string> lines;
  for (const std::string& line : {look_at_time(), look_at_bytes(bytes)})
    if (!line.empty()) lines.push_back(line);
  watches_ = false;
  return lines;
}

// The middle one: a pause of the machine is not the pace of the run.
std::string PlanWatch::look_at_time() const {
  if (!place_.first || expected_->step_seconds <= 0) return "";
  std::vector<double> sorted = seconds_;
  std::sort(sorted.begin(), sorted.end());
  const double middle = (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  const double share = off_by(middle, expected_->step_seconds);
  if (std::abs(share) <= allowed) return "";
  return leaves("step time", to_text(Seconds{middle}), to_text(Seconds{expected_->step_seconds}),
                share);
}

// Stages between the first and the last may be of several kinds: any of them will do.
std::string PlanWatch::look_at_bytes(int64_t bytes) const {
  if (bytes <= 0 || expected_->ranks.empty()) return "";
  const auto& all = expected_->ranks;
  const bool last = place_.stage + 1 == place_.stages;
  std::vector<ExpectedRank> kinds = all;
  if (static_cast<int64_t>(all.size()) == place_.stages)
    kinds = {all[static_cast<size_t>(place_.stage)]};
  else if (place_.stage == 0 || last)
    kinds = {place_.stage == 0 ? all.front() : all.back()};
  const auto by_bytes = [](const ExpectedRank& a, const ExpectedRank& b) {
    return a.bytes < b.bytes;
  };
  const ExpectedRank& least = *std::min_element(kinds.begin(), kinds.end(), by_bytes);
  const ExpectedRank& most = *std::max_element(kinds.begin(), kinds.end(), by_bytes);
  const auto real = static_cast<double>(bytes);
  const double above = off_by(real, static_cast<double>(most.bytes));
  const double below = off_by(real, static_cast<double>(least.bytes));
  // A peak of the evaluation or a checkpoint may still come.
  const bool steps_alone = least.moment.find("step") != std::string::npos;
  if (above > allowed)
    return leaves("peak memory", to_text(Bytes{bytes}), to_text(Bytes{most.bytes}), above);
  if (below < -allowed && steps_alone)
    return leaves("peak memory", to_text(Bytes{bytes}), to_text(Bytes{least.bytes}), below);
  return "";
}

}  // namespace braid::train
