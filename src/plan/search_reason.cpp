// SPDX-License-Identifier: BSD-3-Clause
// Why a plan lost, in a few words with its numbers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "plan/search_evaluate.h"

namespace braid::plan {
namespace {

// A kind as it is spoken of: 43 GiB of what?
const char* kind_words(size_t kind) {
  constexpr std::array<const char*, memory_kinds> words = {
      "weights",     "gradients",   "optimizer states",      "master weights", "input",
      "activations", "temporaries", "communication buffers", "workspaces",     "other tensors"};
  return words[kind];
}

const RankPeak& fullest(const Plan& plan) {
  return *std::max_element(
      plan.peaks.begin(), plan.peaks.end(),
      [](const RankPeak& a, const RankPeak& b) { return a.device < b.device; });
}

struct Loss {
  double seconds = 0;  // more than the winner's
  std::string text;
};

std::string percent(double part, double whole) {
  return fmt::format("{:.0f} %", whole > 0 ? 100 * part / whole : 0);
}

std::vector<Loss> losses(const StepTime& lost, const StepTime& won) {
  const TimeParts &a = lost.parts, &b = won.parts;
  const double step = lost.seconds, computing = a.forward + a.backward;
  std::vector<Loss> all;
  all.push_back({a.bubble - b.bubble, "bubble " + percent(a.bubble, step)});
  all.push_back({a.communication - b.communication,
                 "exposed communication " + percent(a.communication, step)});
  all.push_back(
      {a.recompute - b.recompute, "computes " + percent(a.recompute, computing) + " more again"});
  all.push_back({a.launch - b.launch,
                 "launch-bound: the GPU waits " + percent(a.launch, step) + " for the host"});
  all.push_back({a.copies - b.copies,
                 "waits " + percent(a.copies, step) + " for copies to and from the host"});
  all.push_back({a.data - b.data, "waits " + percent(a.data, step) + " for samples"});
  all.push_back({a.optimizer - b.optimizer, "optimizer " + percent(a.optimizer, step)});
  all.push_back({a.checkpoint - b.checkpoint, "saving " + percent(a.checkpoint, step)});
  const double before = b.forward + b.backward;
  all.push_back(
      {computing - before, "kernels take " + percent(computing - before, before) + " longer"});
  std::stable_sort(all.begin(), all.end(),
                   [](const Loss& x, const Loss& y) { return x.seconds > y.seconds; });
  return all;
}

std::string slower_text(const Plan& plan, const Plan& winner) {
  const double more = plan.time.seconds - winner.time.seconds;
  const double share = winner.time.seconds > 0 ? more / winner.time.seconds : 0;
  if (share < 5e-4) return "as fast";
  const std::vector<Loss> all = losses(plan.time, winner.time);
  std::string text;
  for (const Loss& loss : all)  // all that matter, the largest first
    if (loss.seconds > 0.25 * more && (text.empty() || loss.seconds > 0.5 * all.front().seconds))
      text += (text.empty() ? "" : ", ") + loss.text;
  return fmt::format("{:.{}f} % slower: {}", 100 * share, share < 0.1 ? 1 : 0,
                     text.empty() ? all.front().text : text);
}

}  // namespace

std::string size_text(int64_t bytes) {
  constexpr double gib = 1 << 30;
  if (bytes < (int64_t{1} << 29)) return to_text(Bytes{bytes});
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / gib);
}

std::string miss_text(const Plan& plan, int64_t room) {
  const RankPeak& peak = fullest(plan);
  const auto largest = std::max_element(peak.by_kind.begin(), peak.by_kind.end());
  const auto kind = static_cast<size_t>(largest - peak.by_kind.begin());
  const int64_t beside = peak.device - peak.reserved;  // what no tensor takes
  const int64_t share = std::max(*largest, beside);
  const char* what = beside > *largest ? "communicators and the driver" : kind_words(kind);
  std::string text = fmt::format("{} of {} (by {})", size_text(plan.peak_bytes), size_text(room),
                                 size_text(plan.peak_bytes - room));
  if (share * 2 >= plan.peak_bytes) return text + ", most of it " + what;
  return text +
         fmt::format(", {} % of it {}", 100 * share / std::max<int64_t>(plan.peak_bytes, 1), what);
}

std::string reason_of(const Plan& plan, const Plan* winner, int64_t room) {
  if (plan.peak_bytes > room) return "does not fit: " + miss_text(plan, room);
  if (!plan.fits)
    return fmt::format("does not fit: {} on the host, for each GPU of a node",
                       size_text(fullest(plan).host));
  return winner == nullptr || winner == &plan ? "" : slower_text(plan, *winner);
}

}  // namespace braid::plan
