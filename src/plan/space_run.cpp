// SPDX-License-Identifier: BSD-3-Clause
#include "plan/space_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "braid/core/deadline.h"
#include "braid/core/error.h"
#include "braid/parallel/mesh.h"
#include "braid/train/measure.h"

namespace braid::plan {
namespace {

constexpr int64_t passes_run = 3;  // the first, one like all between, the last

// Where the passes of a trace begin and end.
struct Passes {
  int64_t first = 0, second = 0, third = 0, end = 0;
};
Passes passes_of(const RankTrace& trace) {
  std::vector<int64_t> begins;
  int64_t end = 0;
  for (const RegionMark& mark : trace.regions) {
    if (mark.name == "forward") begins.push_back(mark.from);
    if (mark.name == "backward") end = std::max(end, mark.until);
  }
  if (begins.size() != passes_run)
    throw InternalError(
        {.what = fmt::format("{} passes in a step of {}", begins.size(), passes_run),
         .why = "a step has one forward region a micro-batch",
         .fix = "report this"});
  return {.first = begins[0], .second = begins[1], .third = begins[2], .end = end};
}

class Repeater {
 public:
  Repeater(const RankTrace& three, int64_t micros)
      : three_(three),
        passes_(passes_of(three)),
        length_(passes_.third - passes_.second),
        more_(micros - passes_run),
        lead_(more_ * (passes_.first / passes_run)) {}

  RankTrace repeated() {
    RankTrace all;
    add_operators(all);
    add(
        three_.messages, all.messages, [](const Message& m) { return m.from; },
        [this](Message m, int64_t copies) {
          // What is waited for after the last pass is so for all of them.
          m.until += lead_ + (m.until > passes_.end ? more_ : copies) * length_;
          m.from += lead_ + copies * length_;
          return m;
        });
    std::stable_sort(all.messages.begin(), all.messages.end(),
                     [](const Message& a, const Message& b) { return a.from < b.from; });
    add(
        three_.copies, all.copies, [](const Copy& c) { return c.op; },
        [this](Copy c, int64_t copies) {
          c.op += lead_ + copies * length_;
          return c;
        });
    std::stable_sort(all.copies.begin(), all.copies.end(),
                     [](const Copy& a, const Copy& b) { return a.op < b.op; });
    add_regions(all);
    return all;
  }

 private:
  void add_operators(RankTrace& all) const {
    const auto begin = three_.operators.begin();
    all.operators.reserve(three_.operators.size() + static_cast<size_t>(more_ * length_));
    // The batch is cut into its passes first.
    for (int64_t i = 0; i < lead_; ++i) all.operators.push_back(three_.operators.front());
    all.operators.insert(all.operators.end(), begin, begin + passes_.third);
    for (int64_t i = 0; i < more_; ++i) {
      check_deadline();
      all.operators.insert(all.operators.end(), begin + passes_.second, begin + passes_.third);
    }
    all.operators.insert(all.operators.end(), begin + passes_.third, three_.operators.end());
  }

  // What stands before the pass that is repeated once, in it as often as that, behind it later.
  template <class T, class At, class Moved>
  void add(const std::vector<T>& from, std::vector<T>& to, const At& at, const Moved& moved) const {
    for (const T& each : from) {
      if (at(each) < passes_.second) {
        to.push_back(moved(each, 0));
      } else if (at(each) >= passes_.third) {
        to.push_back(moved(each, more_));
      } else {
        for (int64_t i = 0; i <= more_; ++i) to.push_back(moved(each, i));
      }
    }
  }

  void add_regions(RankTrace& all) const {
    add(
        three_.regions, all.regions, [](const RegionMark& r) { return r.from; },
        [this](RegionMark r, int64_t copies) {
          r.from += lead_ + copies * length_;
          r.until += lead_ + copies * length_;
          if (r.micro > 0) r.micro += copies;
          return r;
        });
    std::erase_if(all.regions, [](const RegionMark& r) {  // of no length, between two passes
      return r.name != "forward" && r.name != "backward" && r.name != "optimizer";
    });
    std::stable_sort(all.regions.begin(), all.regions.end(),
                     [](const RegionMark& a, const RegionMark& b) { return a.from < b.from; });
  }

  const RankTrace& three_;
  const Passes passes_;
  const int64_t length_, more_;
  const int64_t lead_;  // more operators before the first pass
};

struct Shortened {
  train::RunOptions options;
  int64_t micros = 1;      // of the whole step
  int64_t more_bytes = 0;  // that samples left out take on the device
};

// Nothing for steps that have to be run whole. A last pass that is smaller takes time of its own,
// but never more memory than those before it.
std::optional<Shortened> shortened(const train::RunOptions& options, const parallel::Mesh& mesh,
                                   bool time) {
  const int64_t ranks = mesh.batch_ranks(), batch = global_batch_of(options.train, ranks);
  if (mesh.size(parallel::Axis::pipeline) > 1 || batch % ranks != 0) return std::nullopt;
  const int64_t rows = batch / ranks, micro = options.train.micro_batch.value_or(rows);
  const int64_t evaluated = options.valid.batch.value_or(0);
  if (micro < 1 || rows / micro <= passes_run + 1) return std::nullopt;
  if (time && rows % micro != 0) return std::nullopt;
  if (evaluated > passes_run * micro) return std::nullopt;
  Shortened found{.options = options, .micros = rows / micro};
  found.options.train.global_batch.reset();
  found.options.train.local_batch = passes_run * micro;
  const data::Batch one = train::empty_batch(options, 1, c10::kMeta);
  found.more_bytes =
      (rows - passes_run * micro) * static_cast<int64_t>(one.input.nbytes() + one.target.nbytes());
  return found;
}

void add_input(RankMemory& memory, int64_t bytes) {
  constexpr auto input = static_cast<size_t>(MemoryKind::input);
  for (MomentBytes* moment :
       {&memory.first_step, &memory.steady_step, &memory.evaluation, &memory.checkpoint}) {
    moment->allocated += bytes;
    moment->reserved += bytes;
    moment->peak.bytes += bytes;
    moment->peak.by_kind[input] += bytes;
  }
  memory.peak.bytes += bytes;
  memory.peak.by_kind[input] += bytes;
  memory.reserved += bytes;
}

// A repeated trace is as long as the step.
void check_length(const RankTrace& three, int64_t micros) {
  constexpr double most = 4e6;
  const double operators =
      static_cast<double>(three.operators.size()) / passes_run * static_cast<double>(micros);
  if (operators <= most) return;
  throw ConfigError({.what = fmt::format(
                         "a step of {} micro-batches has more than {:.0e} operators", micros, most),
                     .why = "the plan times each of them",
                     .fix = "a larger train.micro_batch, or a smaller train.global_batch"});
}

}  // namespace

RankTrace with_passes(const RankTrace& three, int64_t micros) {
  if (micros == passes_run) return three;
  check_length(three, micros);
  return Repeater(three, micros).repeated();
}

LayoutRun quick_layout(const train::RunOptions& options, int64_t world, const LayoutOptions& how) {
  const parallel::Mesh mesh(options.mesh, world, 0, static_cast<int>(options.train.zero));
  const std::optional<Shortened> shorter = shortened(options, mesh, how.trace);
  if (!shorter) return dry_layout(options, world, how);
  LayoutRun run = dry_layout(shorter->options, world, how);
  run.options = options;
  run.samples = static_cast<double>(global_batch_of(options.train, mesh.batch_ranks()));
  const double times = static_cast<double>(shorter->micros) / passes_run;
  run.tokens *= times;
  run.flops *= times;
  const int64_t batches = train::MeasureOptions{.device = how.device}.batches();
  for (RankRun& rank : run.ranks) {
    if (how.trace) rank.trace = with_passes(rank.trace, shorter->micros);
    add_input(rank.memory, batches * shorter->more_bytes);
  }
  return run;
}

}  // namespace braid::plan
