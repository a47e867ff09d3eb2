// SPDX-License-Identifier: BSD-3-Clause
// What the page of src/report/page/plan.html is given.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>

#include "braid/core/observe.h"
#include "braid/report/plan_page.h"
#include "plan/present_json.h"

namespace braid::plan {
namespace {

constexpr double columns_drawn = 1500;  // a screen has about as many

double six_digits(double value) {
  const std::string digits = fmt::format("{:.6g}", value);
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

Json page_rank(const RankPeak& peak) {
  Json parts = Json::array();
  for (const int64_t bytes : peak.by_kind) parts.push_back(bytes);
  parts.push_back(std::max<int64_t>(0, peak.reserved - peak.bytes));
  parts.push_back(std::max<int64_t>(0, peak.device - std::max(peak.reserved, peak.bytes)));
  return {{"name", peak.name},
          {"parts", std::move(parts)},
          {"device", peak.device},
          {"moment", peak.moment},
          {"module", peak.module}};
}

std::string largest_part(const StepTime& time) {
  const auto parts = named_parts(time.parts);
  const auto most = std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (time.seconds <= 0) return "";
  return fmt::format("{} {:.0f} %", most->first, 100 * most->second / time.seconds);
}

Json page_plan(const Plan& plan, size_t place) {
  const StepTime& time = plan.time;
  Json ranks = Json::array(), parts = Json::array();
  for (const RankPeak& peak : plan.peaks) ranks.push_back(page_rank(peak));
  for (const auto& [name, seconds] : named_parts(time.parts)) parts.push_back(six_digits(seconds));
  const bool staged = plan.choice.mesh.pipeline > 1;
  return {{"place", plan.fits ? std::to_string(place) : "–"},
          {"layout", layout_text(plan.choice)},
          {"precision", precision_word(plan)},
          {"zero", plan.choice.zero},
          {"memory", memory_text(plan.choice)},
          {"micro", plan.choice.micro_batch},
          {"schedule", staged ? std::string(parallel::to_text(plan.choice.schedule)) : "–"},
          {"fits", plan.fits},
          {"peak", plan.peak_bytes},
          {"ranks", std::move(ranks)},
          {"seconds", six_digits(time.seconds)},
          {"parts", std::move(parts)},
          {"pace", six_digits(time.tokens_per_second > 0 ? time.tokens_per_second
                                                         : time.samples_per_second)},
          {"samples", six_digits(time.samples_per_second)},
          {"mfu", six_digits(time.model_utilisation)},
          {"bound", largest_part(time)},
          {"reason", reason_word(plan)}};
}

// Spans of one stream, in time; neighbours that a screen cannot tell apart are one, under the name
// of the longest.
class ThinnedSpans {
 public:
  explicit ThinnedSpans(double width) : width_(width) {}

  void add(const TimeSpan& span) {
    const double took = span.end - span.begin;
    const bool near = !spans_.empty() && span.begin - spans_.back().end < width_;
    if (near && span.end - spans_.back().begin < 2 * width_) {
      Drawn& last = spans_.back();
      last.end = std::max(last.end, span.end);
      if (took > last.longest) last.name = span.name;
      last.longest = std::max(last.longest, took);
    } else {
      spans_.push_back({span.begin, span.end, took, span.name});
    }
  }

  Json json(std::map<std::string, size_t>& names) const {
    Json array = Json::array();
    for (const Drawn& span : spans_)
      array.push_back({six_digits(1e3 * span.begin), six_digits(1e3 * (span.end - span.begin)),
                       names.try_emplace(span.name, names.size()).first->second});
    return array;
  }

 private:
  struct Drawn {
    double begin, end, longest;
    std::string name;
  };
  double width_;
  std::vector<Drawn> spans_;
};

int stream_place(const std::string& stream) {
  constexpr const char* order[] = {"regions", "compute", "comm", "copy", "host"};
  for (int i = 0; i < 5; ++i)
    if (stream.starts_with(order[i])) return i;
  return 5;
}

Json page_timeline(const StepTime& time) {
  std::vector<TimeSpan> spans = time.timeline;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const TimeSpan& a, const TimeSpan& b) { return a.begin < b.begin; });
  double end = time.seconds;
  for (const TimeSpan& span : spans) end = std::max(end, span.end);
  std::map<std::tuple<int64_t, int, std::string>, ThinnedSpans> streams;
  for (const TimeSpan& span : spans)
    streams.try_emplace({span.rank, stream_place(span.stream), span.stream}, end / columns_drawn)
        .first->second.add(span);
  std::map<std::string, size_t> numbers;
  Json rows = Json::array();
  for (const auto& [key, drawn] : streams)
    rows.push_back({{"rank", fmt::format("rank {}", std::get<0>(key))},
                    {"stream", std::get<2>(key)},
                    {"spans", drawn.json(numbers)}});
  std::vector<std::string> names(numbers.size());
  for (const auto& [name, number] : numbers) names[number] = name;
  return {{"ms", six_digits(1e3 * end)}, {"rows", std::move(rows)}, {"names", std::move(names)}};
}

Json page_head(const Request& request) {
  Json kinds = Json::array(), parts = Json::array();
  for (int kind = 0; kind < memory_kinds; ++kind)
    kinds.push_back(std::string(to_text(static_cast<MemoryKind>(kind))));
  kinds.push_back("gaps of the allocator");
  kinds.push_back("driver, communicators");
  for (const auto& [name, seconds] : named_parts({})) parts.push_back(name);
  return {{"model", model_word(request.options)},
          {"gpus", request.gpus},
          {"gpu", request.cluster.gpu.name},
          {"cluster", request.cluster.title.empty() ? request.cluster.name : request.cluster.title},
          {"batch", batch_asked(request)},
          {"limit", memory_limit(request)},
          {"kinds", std::move(kinds)},
          {"parts", std::move(parts)}};
}

}  // namespace

std::string page_html(const Request& request, const Found& found) {
  Json json = page_head(request);
  bool tokens = false;
  size_t place = 0;
  json["plans"] = Json::array();
  for (const Plan& plan : found.plans) {
    tokens = tokens || plan.time.tokens_per_second > 0;
    json["plans"].push_back(page_plan(plan, ++place));
  }
  json["unit"] = tokens ? "tokens" : "samples";
  json["search"] = {{"choices", found.choices},
                    {"pruned", found.pruned},
                    {"dry_runs", found.dry_runs},
                    {"seconds", six_digits(found.seconds)},
                    {"notes", found.notes}};
  json["timeline"] = found.plans.empty() ? Json(nullptr) : page_timeline(found.plans[0].time);
  return report::plan_page(fmt::format("braid: plan of {} on {} x {}", model_word(request.options),
                                       request.gpus, request.cluster.gpu.name),
                           json.dump());
}

}  // namespace braid::plan
