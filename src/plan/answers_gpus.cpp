// SPDX-License-Identifier: BSD-3-Clause
// How many GPUs: the fewest that hold a run, the cheapest, and how it scales.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "braid/core/deadline.h"
#include "braid/core/error.h"
#include "braid/core/units.h"
#include "plan/search_evaluate.h"
#include "plan/space_bound.h"

namespace braid::plan {
namespace {

constexpr double still_good = 0.75;  // efficiency

// Numbers that people ask for: within a node all, then whole nodes, more and more of them.
std::vector<int64_t> gpu_counts(const Cluster& cluster, int64_t most) {
  std::set<int64_t> counts;
  const int64_t node = cluster.gpus_per_node;
  for (int64_t i = 1; i <= std::min(node, most); ++i) counts.insert(i);
  for (int64_t nodes = 1; nodes <= cluster.nodes && nodes * node <= most; nodes *= 2)
    counts.insert(nodes * node);
  if (most <= cluster.gpus()) counts.insert(most);
  return {counts.begin(), counts.end()};
}

Request on(const Request& request, int64_t gpus) {
  Request other = request;
  other.gpus = gpus;
  return other;
}

// The time limit of a question, shared out among its searches: what one leaves, the next ones get.
class SharedTime {
 public:
  explicit SharedTime(double seconds) : seconds_(seconds) {}

  bool over() const { return seconds_ > 0 && left() <= 0; }
  double left() const { return seconds_ - spent(); }
  // Of the next one of so many; 0: no limit.
  double of_next(size_t searches) const {
    if (seconds_ <= 0) return 0;
    return std::max(left(), 0.1) / static_cast<double>(std::max<size_t>(searches, 1));
  }
  void skip(int64_t gpus) { skipped_.push_back(gpus); }
  // Behind an answer: what the limit left out.
  std::string note() const {
    if (skipped_.empty()) return "";
    return fmt::format("; the time limit of {} (--seconds) left out {} GPUs",
                       to_text(Seconds{seconds_}), fmt::join(skipped_, ", "));
  }

 private:
  double spent() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  double seconds_;
  std::vector<int64_t> skipped_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The fullest savings of each mesh, least memory first: does any of them fit?
class Smallest {
 public:
  explicit Smallest(const Request& request)
      : request_(request), base_(base_of(request)), bounds_(request_, base_) {
    const auto again = recompute_levels(base_.options, base_.blocks).back();
    for (const Choice& choice : choices_of(request))
      if (choice.micro_batch == 1 && choice.recompute == again &&
          choice.offload == offloads_for(request, choice.zero).back())
        ordered_.emplace_back(bounds_.memory(choice), choice);
    std::stable_sort(ordered_.begin(), ordered_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  std::optional<Plan> fitting() {
    Evaluator evaluator(request_, base_);
    constexpr size_t tried = 8;
    for (size_t i = 0; i < std::min(tried, ordered_.size()); ++i) {
      Plan plan = evaluator.memory(apply(base_.options, ordered_[i].second), request_.gpus);
      if (plan.fits) return plan;
      if (!nearest || plan.peak_bytes < nearest->peak_bytes) nearest = plan;
    }
    return std::nullopt;
  }
  const Base& base() const { return base_; }
  std::optional<Plan> nearest;

 private:
  const Request& request_;
  const Base base_;
  Bounds bounds_;
  std::vector<std::pair<int64_t, Choice>> ordered_;
};

struct BestPlan {
  std::optional<Plan> plan;
  bool late = false;
};

BestPlan best_plan(const Request& request) {
  try {
    Found found = search(request);
    if (found.plans.empty()) return {.plan = {}, .late = found.late};
    return {.plan = std::move(found.plans.front()), .late = found.late};
  } catch (const ConfigError&) {  // the batch or the model is not compatible with that many
    return {};
  }
}

double gpu_seconds(const Plan& plan, int64_t gpus) {
  return plan.time.seconds * static_cast<double>(gpus);
}

std::string hours_text(const Plan& plan, int64_t gpus) {
  if (plan.gpu_hours > 0) return fmt::format("{:.4g} GPU hours", plan.gpu_hours);
  return fmt::format("{:.4g} GPU seconds a step", gpu_seconds(plan, gpus));
}

int64_t first_below(const std::vector<ScalingPoint>& points) {
  for (const ScalingPoint& point : points)
    if (point.samples_per_second > 0 && point.efficiency < still_good) return point.gpus;
  return 0;
}

ScalingPoint point_of(const Request& request, const std::vector<ScalingPoint>& before) {
  ScalingPoint point;
  point.gpus = request.gpus;
  point.efficiency = 0;
  auto [plan, late] = best_plan(request);
  if (!plan) {
    point.plan.reason = late ? "nothing found within --seconds" : "no mesh has this number of GPUs";
    return point;
  }
  point.plan = std::move(*plan);
  if (!point.plan.fits) return point;
  point.samples_per_second = point.plan.time.samples_per_second;
  const auto first = std::find_if(before.begin(), before.end(), [](const ScalingPoint& each) {
    return each.samples_per_second > 0;
  });
  const ScalingPoint& reference = first == before.end() ? point : *first;
  point.efficiency = point.samples_per_second / static_cast<double>(point.gpus) /
                     (reference.samples_per_second / static_cast<double>(reference.gpus));
  return point;
}

}  // namespace

Answer fewest_gpus(const Request& request) {
  const int64_t most = request.gpus > 1 ? request.gpus : request.cluster.gpus();
  const Deadline limit(request.seconds);
  SharedTime time(request.seconds);
  Answer answer;
  std::optional<Plan> nearest;
  int64_t room = request.memory;
  for (const int64_t gpus : gpu_counts(request.cluster, most)) {
    Request here = on(request, gpus);
    try {
      Smallest smallest(here);
      room = smallest.base().room;
      if (const std::optional<Plan> plan = smallest.fitting()) {
        here.seconds = time.of_next(1);
        const Found found = search(here);
        const bool better = !found.plans.empty() && found.plans.front().fits;
        answer.plan = better ? found.plans.front() : *plan;
        answer.value = gpus;
        answer.text = fmt::format("{} GPU{}: {}, {} of {}", gpus, gpus == 1 ? "" : "s",
                                  to_text(answer.plan.choice), size_text(answer.plan.peak_bytes),
                                  size_text(room));
        return answer;
      }
      if (smallest.nearest) nearest = smallest.nearest;
    } catch (const ConfigError&) {  // no mesh of so many
    } catch (const OutOfTime&) {
      time.skip(gpus);
    }
  }
  if (nearest) answer.plan = *nearest;
  answer.text =
      (nearest ? fmt::format("it does not fit on up to {} GPUs; the nearest miss is {}: {}", most,
                             to_text(nearest->choice), miss_text(*nearest, room))
               : fmt::format("no mesh of up to {} GPUs is compatible with this model "
                             "and batch",
                             most)) +
      time.note();
  return answer;
}

Answer cheapest(const Request& request, int64_t most_gpus) {
  std::vector<int64_t> counts = gpu_counts(request.cluster, most_gpus);
  std::erase_if(counts, [&](int64_t gpus) {
    return (gpus & (gpus - 1)) != 0 && gpus % request.cluster.gpus_per_node != 0;
  });
  const Deadline limit(longest_seconds(request));
  SharedTime time(request.seconds);
  Answer answer;
  for (size_t i = 0; i < counts.size(); ++i) {
    Request here = on(request, counts[i]);
    here.seconds = time.of_next(counts.size() - i);
    const auto [plan, late] = time.over() ? BestPlan{.plan = {}, .late = true} : best_plan(here);
    const bool found = plan && plan->fits;
    if (!found && late) time.skip(here.gpus);
    if (!found || (answer.value > 0 &&
                   gpu_seconds(*plan, here.gpus) >= gpu_seconds(answer.plan, answer.value)))
      continue;
    answer.value = here.gpus;
    answer.plan = *plan;
  }
  answer.text =
      (answer.value == 0
           ? fmt::format("no layout that fits was found on up to {} GPUs", most_gpus)
           : fmt::format("{} on {} GPU{}: {}", hours_text(answer.plan, answer.value), answer.value,
                         answer.value == 1 ? "" : "s", to_text(answer.plan.choice))) +
      time.note();
  return answer;
}

Scaling scaling(const Request& request, const std::vector<int64_t>& gpus) {
  if (gpus.empty())
    throw ConfigError({.what = "a scaling curve over no number of GPUs",
                       .why = "it has a point for each number",
                       .fix = "--scaling 1,2,4,8"});
  Scaling curves;
  SharedTime time(request.seconds);
  size_t searches = 2 * gpus.size() - 1;  // the first point is of both curves
  const int64_t batch = base_of(on(request, gpus.front())).batch;
  const Deadline limit(longest_seconds(request));
  for (const int64_t count : gpus) {
    Request strong = on(request, count), weak = strong;
    strong.global_batch = batch;
    weak.global_batch = batch * count / gpus.front();
    strong.seconds = time.of_next(searches--);
    curves.strong.push_back(point_of(strong, curves.strong));
    if (count == gpus.front()) {
      curves.weak.push_back(curves.strong.front());
      continue;
    }
    weak.seconds = time.of_next(searches--);
    curves.weak.push_back(point_of(weak, curves.weak));
  }
  curves.strong_below = first_below(curves.strong);
  curves.weak_below = first_below(curves.weak);
  return curves;
}

}  // namespace braid::plan
