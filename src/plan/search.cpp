// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "braid/core/deadline.h"
#include "braid/core/error.h"
#include "plan/search_climb.h"
#include "plan/search_evaluate.h"
#include "plan/search_found.h"
#include "plan/space_bound.h"

namespace braid::plan {
namespace {

constexpr size_t kept_best = 1;      // the space is searched until the fastest is certain
constexpr double better_by = 1.003;  // a step of a climb

class Search {
 public:
  using Clock = std::chrono::steady_clock;

  Search(const Request& request, Clock::time_point start)
      : request_(request),
        base_(base_of(request)),
        choices_(choices_of(request)),
        bounds_(request, base_),
        evaluator_(request, base_),
        seen_(choices_.size(), Seen::no),
        known_(choices_.size(), std::numeric_limits<double>::max()),
        start_(start) {
    std::map<std::string, size_t> numbers;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const size_t number = numbers.try_emplace(family(choices_[i]), numbers.size()).first->second;
      family_of_.push_back(number);
      families_.resize(numbers.size());
      families_[number].push_back(i);
    }
  }

  // Within the time limit of this thread.
  void explore() {
    try {
      best_first({.size = choices_.size(),
                  .bound = [this](size_t i) { return bound(i); },
                  .value = [this](size_t i) { return value(i); },
                  .stop = [this] { return enough(); }},
                 kept_best);
      if (any_fits())
        look_at_others();
      else
        look_at_smallest();
    } catch (const OutOfTime&) {  // in the middle of a dry run
      late_ = true;
    }
  }

  Found found() {
    Found found;
    const double left = late_ ? fastest_left() : 0;  // before plans are handed over
    const int64_t open = late_ ? choices_left() : 0;
    for (auto& [i, plan] : plans_) found.plans.push_back(std::move(plan));
    sort_plans(found.plans);
    const Plan* winner =
        !found.plans.empty() && found.plans.front().fits ? &found.plans.front() : nullptr;
    for (Plan& plan : found.plans) plan.reason = reason_of(plan, winner, base_.room);
    found.late = late_;
    found.choices = static_cast<int64_t>(choices_.size());
    found.pruned = found.choices - static_cast<int64_t>(plans_.size()) - open;
    add_notes(found, {.choices = open, .fastest = left});
    add_timeline(found);
    cut_plans(found.plans, request_.most_plans);
    found.dry_runs = bounds_.dry_runs() + evaluator_.dry_runs();
    found.seconds = spent();
    return found;
  }

 private:
  enum class Seen : uint8_t {  // in this order
    no,
    kernels,
    messages,
    memory,
    exact,
    too_large,
    evaluated,
    refused
  };

  double patience() const { return request_.seconds > 0 ? request_.seconds : 120; }

  // Between two looks. A space of few choices, or of quick ones, is done before long; in another
  // something good is found sooner by a climb.
  bool enough() {
    tell();
    if (!climbed_ && spent() > 0.15 * patience()) {
      climbed_ = true;
      climb();
    }
    return late();
  }

  void tell() {
    constexpr double pause = 0.2;
    if (!request_.progress || spent() < told_ + pause) return;
    told_ = spent();
    request_.progress(request_.gpus, static_cast<int64_t>(plans_.size()),
                      static_cast<int64_t>(choices_.size()));
  }

  // From some places that one would try first, by steps to what is better, until nothing near is.
  void climb() {
    for (size_t i = 0; i < choices_.size(); ++i) number_of_.emplace(to_text(choices_[i]), i);
    const double until = spent() + 0.35 * patience();
    const Slope slope{.neighbours = [this](size_t here) { return neighbours(here); },
                      .better = [this](size_t there, size_t here) { return better(there, here); },
                      .stop = [&] { return spent() > until; }};
    for (const Choice& start : starts_of(request_, base_)) {
      const auto number = number_of_.find(to_text(start));
      if (number == number_of_.end() || !looked_at(number->second)) continue;
      plan::climb(slope, number->second);
      if (slope.stop()) return;
    }
  }

  // Those that may be better.
  std::vector<size_t> neighbours(size_t here) {
    const Plan& plan = plans_.at(here);
    std::vector<size_t> near;
    for (const Choice& choice : neighbours_of(choices_[here], request_, base_)) {
      const auto number = number_of_.find(to_text(choice));
      if (number == number_of_.end() || settled(number->second)) continue;
      if (!plan.fits ||
          bounds_.throughput(choice, Bounds::Level::kernels) > plan.time.samples_per_second)
        near.push_back(number->second);
    }
    return near;
  }

  // Fits, and is sooner; or takes less, as long as nothing fits.
  bool better(size_t there, size_t here) {
    if (!looked_at(there)) return false;
    const Plan &a = plans_.at(there), &b = plans_.at(here);
    if (a.fits != b.fits) return a.fits;
    return a.fits ? a.time.samples_per_second > better_by * b.time.samples_per_second
                  : a.peak_bytes < b.peak_bytes;
  }

  // Whether it has a plan, which is made if need be: layers may refuse it.
  bool looked_at(size_t i) {
    if (seen_[i] < Seen::too_large) value(i);
    return plans_.contains(i);
  }

  double spent() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool late() {
    late_ = late_ || (request_.seconds > 0 && spent() > request_.seconds && any_fits());
    return late_;
  }

  // Choices that differ in micro-batch, recompute and offload alone.
  static std::string family(Choice choice) {
    choice.micro_batch = 0;
    choice.recompute = memory::Again::none;
    choice.offload.clear();
    return to_text(choice);
  }

  // Something of its family that costs less fits, or something that takes less does not.
  bool settled(size_t i) const {
    const Choice& mine = choices_[i];
    for (const size_t j : families_[family_of_[i]]) {
      const auto plan = plans_.find(j);
      if (plan == plans_.end() || j == i) continue;
      const Choice& other = choices_[j];
      if (plan->second.fits && other.micro_batch == mine.micro_batch && costs_less(other, mine))
        return true;
      if (misses_by_tensors(plan->second) && costs_less(mine, other) && no_less_held(mine, other))
        return true;
    }
    return false;
  }

  // More than the room of the GPU, without the gaps between tensors and the scratch of kernels:
  // both may be smaller where tensors are larger.
  bool misses_by_tensors(const Plan& plan) const {
    constexpr auto scratch = static_cast<size_t>(MemoryKind::workspace);
    return std::any_of(plan.peaks.begin(), plan.peaks.end(), [&](const RankPeak& peak) {
      return peak.bytes - peak.by_kind[scratch] + request_.cluster.gpu.context.count > base_.room;
    });
  }

  // By its activations and gradients: a single pass has no gradients before its activations go.
  bool no_less_held(const Choice& mine, const Choice& other) const {
    if (mine.micro_batch == other.micro_batch) return true;
    const int64_t ranks = *mine.mesh.data * *mine.mesh.shard * mine.mesh.expert;
    return mine.micro_batch > other.micro_batch && base_.batch / ranks > mine.micro_batch;
  }

  // A little more is looked at each time that a choice comes up, until that lowers its bound: most
  // choices are never looked at closely.
  double bound(size_t i) {
    if (seen_[i] >= Seen::too_large || known_[i] <= fastest_ || settled(i)) return 0;
    const double before = known_[i];
    try {
      while (known_[i] == before && seen_[i] < Seen::exact) look_closer(i);
    } catch (const ConfigError& refused) {
      return refuse(i, refused);
    }
    // Others may have shown meanwhile that it is too large.
    if (seen_[i] == Seen::exact && bounds_.too_large(choices_[i])) seen_[i] = Seen::too_large;
    return seen_[i] == Seen::too_large ? 0 : known_[i];
  }

  void look_closer(size_t i) {
    const Choice& choice = choices_[i];
    Seen& seen = seen_[i];
    seen = static_cast<Seen>(static_cast<uint8_t>(seen) + 1);
    if (seen == Seen::memory) {
      if (bounds_.too_large(choice)) seen = Seen::too_large;
      return;
    }
    const auto level = seen == Seen::kernels    ? Bounds::Level::kernels
                       : seen == Seen::messages ? Bounds::Level::messages
                                                : Bounds::Level::exact;
    known_[i] = std::min(known_[i], bounds_.throughput(choice, level));
  }

  std::pair<bool, double> value(size_t i) {
    const std::optional<Plan> plan = evaluated(i);
    tell();
    if (!plan) return {false, 0};
    return {plan->fits, plan->time.samples_per_second};
  }

  std::optional<Plan> evaluated(size_t i) {
    try {
      Plan plan = evaluator_.plan(choices_[i]);
      seen_[i] = Seen::evaluated;
      bounds_.learn(choices_[i], plan);
      if (plan.fits) fastest_ = std::max(fastest_, plan.time.samples_per_second);
      return plans_[i] = std::move(plan);
    } catch (const ConfigError& refused) {  // found out by the layers themselves
      refuse(i, refused);
      return std::nullopt;
    }
  }

  double refuse(size_t i, const ConfigError& refused) {
    seen_[i] = Seen::refused;
    refusals_[refused.complaint().what] += 1;
    return 0;
  }

  bool any_fits() const {
    return std::any_of(plans_.begin(), plans_.end(),
                       [](const auto& each) { return each.second.fits; });
  }

  // One of each kind that has not come up, the most promising, so that it can be said why it lost.
  void look_at_others() {
    using Kind = std::function<bool(const Choice&)>;
    const std::vector<Kind> kinds = {
        [](const Choice& c) {
          return c.zero == 0 && c.mesh.tensor * c.mesh.context * c.mesh.pipeline == 1;
        },
        [](const Choice& c) { return c.zero == 3; },
        [](const Choice& c) { return c.recompute == memory::Again::attention; },
        [](const Choice& c) { return c.recompute == memory::Again::blocks; },
        [](const Choice& c) { return c.mesh.tensor > 1; },
        [](const Choice& c) { return c.mesh.context > 1; },
        [](const Choice& c) { return c.mesh.expert > 1; },
        [](const Choice& c) { return c.mesh.pipeline > 1; },
        [](const Choice& c) { return !c.offload.empty(); }};
    const double before = spent();  // no more than as long again, and a little
    for (const Kind& kind : kinds) {
      std::optional<size_t> best;
      bool seen = false;
      for (size_t i = 0; i < choices_.size(); ++i) {
        if (!kind(choices_[i])) continue;
        seen |= plans_.contains(i);
        if (seen_[i] < Seen::too_large && (!best || known_[i] > known_[*best])) best = i;
      }
      if (!seen && best && !late() && spent() < 1.5 * before + 10) evaluated(*best);
    }
  }

  // The nearest miss is among those of which least is known to be needed.
  void look_at_smallest() {
    std::vector<std::pair<int64_t, size_t>> by_memory;
    for (size_t i = 0; i < choices_.size(); ++i)
      if (seen_[i] == Seen::too_large) by_memory.emplace_back(bounds_.memory(choices_[i]), i);
    std::sort(by_memory.begin(), by_memory.end());
    constexpr size_t tried = 4;
    for (size_t k = 0; k < std::min(tried, by_memory.size()); ++k) evaluated(by_memory[k].second);
  }

  // Of the winner alone: it is run once more for it.
  void add_timeline(Found& found) {
    if (found.plans.empty() || !found.plans.front().fits) return;
    try {
      found.plans.front().time = evaluator_.plan(found.plans.front().choice, true).time;
    } catch (const OutOfTime&) {
      found.notes.push_back("the time limit left no time for the timeline of the best plan");
    }
  }

  void add_notes(Found& found, const LeftOpen& left) {
    found.notes = arrangements_of(request_, base_).notes;
    const auto too_large = std::count(seen_.begin(), seen_.end(), Seen::too_large);
    if (too_large > 0)
      found.notes.push_back(fmt::format(
          "{} cannot fit: states and one micro-batch alone take more than {} of a GPU{}",
          number_text(too_large, "choice", "choices"), size_text(base_.room),
          request_.offload ? " or more than the hosts have" : ""));
    for (const auto& [what, count] : refusals_)
      found.notes.push_back(
          fmt::format("{} refused: {}", number_text(count, "choice", "choices"), what));
    if (late_) found.notes.push_back(late_note(found, left, request_.seconds));
    if (found.plans.empty() || found.plans.front().fits) return;
    found.notes.push_back(fmt::format("nothing fits; the nearest miss is {}: {}",
                                      to_text(found.plans.front().choice),
                                      miss_text(found.plans.front(), base_.room)));
    if (late_) return;
    try {
      found.notes.push_back(help_text(request_, base_, found.plans.front(), evaluator_));
    } catch (const OutOfTime&) {
      found.notes.push_back("the time limit left no time to look for what would help");
    }
  }

  int64_t choices_left() const {
    int64_t left = 0;
    for (size_t i = 0; i < choices_.size(); ++i)
      left += seen_[i] < Seen::too_large && !settled(i) && known_[i] > fastest_ ? 1 : 0;
    return left;
  }

  // Bounds are sound: what is left cannot be faster than they say.
  double fastest_left() const {
    double most = 0;
    for (size_t i = 0; i < choices_.size(); ++i)
      if (seen_[i] < Seen::too_large && !settled(i)) most = std::max(most, known_[i]);
    return most;
  }

  const Request& request_;
  const Base base_;
  const std::vector<Choice> choices_;
  Bounds bounds_;
  Evaluator evaluator_;
  std::vector<Seen> seen_;
  std::vector<double> known_;  // bounds so far
  std::map<size_t, Plan> plans_;
  std::vector<size_t> family_of_;
  std::vector<std::vector<size_t>> families_;
  std::map<std::string, int64_t> refusals_;
  std::unordered_map<std::string, size_t> number_of_;  // of a choice in words
  bool climbed_ = false;
  double fastest_ = 0;  // samples/s of what fits
  const Clock::time_point start_;
  bool late_ = false;
  double told_ = 0;  // seconds after the start
};

}  // namespace

Found search(const Request& request) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<Search> search;
  try {
    const Deadline limit(longest_seconds(request));
    search.emplace(request, start);
    search->explore();
  } catch (const OutOfTime&) {
    return nothing_in_time(request.seconds);
  }
  constexpr double to_tell = 1;  // of the plans that were found
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  const Deadline limit(
      request.seconds > 0 ? std::max(longest_seconds(request) - spent.count(), 0.0) + to_tell : 0);
  return search->found();
}

Plan evaluate(const Request& request, const Choice& choice) {
  const Base base = base_of(request);
  Plan plan = Evaluator(request, base).plan(choice, true);
  plan.reason = reason_of(plan, nullptr, base.room);
  return plan;
}

}  // namespace braid::plan
