// SPDX-License-Identifier: BSD-3-Clause
#include "braid/memory/recompute.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "braid/core/error.h"
#include "memory/recompute_segment.h"

namespace braid::memory {
namespace {

at::Tensor run_as_segment(const SegmentForward& forward, const std::vector<at::Tensor>& inputs,
                          SegmentOptions options, std::shared_ptr<SegmentCounts> counts) {
  if (!at::GradMode::is_enabled()) return forward(inputs);  // nothing is kept anyway
  return std::make_shared<Segment>(forward, std::move(options), std::move(counts))
      ->first_run(inputs);
}

void check_modes(const RecomputeOptions& options) {
  bool planned = options.what != Again::budget;
  for (const auto& [name, what] : options.blocks) planned = planned && what != Again::budget;
  if (planned) return;
  throw InternalError({.what = "recompute is `budget`, without a plan of what to keep",
                       .why = "which blocks are computed again is chosen before the first step",
                       .fix = "give RecomputeOptions::blocks, one choice for each block"});
}

}  // namespace

RecomputeOptions recompute_options(const MemoryOptions& options) {
  const bool planned = options.recompute == Again::budget;
  return {.what = planned ? Again::none : options.recompute,
          .segment = options.segment,
          .blocks = planned ? options.plan : std::map<std::string, Again>{},
          .check = options.check_recompute};
}

struct Recompute::State {
  RecomputeOptions options;
  Stash* stash = nullptr;
  std::shared_ptr<SegmentCounts> counts = std::make_shared<SegmentCounts>();

  // The longest name that is this one or the beginning of its path.
  Again mode(std::string name) const {
    while (true) {
      const auto found = options.blocks.find(name);
      if (found != options.blocks.end()) return found->second;
      const size_t dot = name.rfind('.');
      if (dot == std::string::npos) return options.what;
      name.resize(dot);
    }
  }
};

Recompute::Recompute(RecomputeOptions options, Stash* stash) : state_(std::make_unique<State>()) {
  check_modes(options);
  state_->options = std::move(options);
  state_->stash = stash;
}
Recompute::~Recompute() = default;

size_t Recompute::together(const std::vector<std::string>& blocks, size_t first) const {
  const int64_t given = state_->options.segment;
  const auto most = given > 0 ? static_cast<size_t>(given)
                              : static_cast<size_t>(std::lround(std::sqrt(double(blocks.size()))));
  size_t count = 0;
  while (count < most && first + count < blocks.size() &&
         state_->mode(blocks[first + count]) == Again::blocks)
    ++count;
  return std::max<size_t>(count, 1);
}

at::Tensor Recompute::run(SegmentKind kind, const std::string& name,
                          const std::vector<at::Tensor>& inputs, const SegmentForward& forward) {
  const Again mode = state_->mode(name);
  const bool whole = mode == Again::blocks || mode == Again::matmuls;
  if (kind == SegmentKind::attention ? mode != Again::attention : !whole) return forward(inputs);
  return run_as_segment(forward, inputs,
                        {.name = name,
                         .keep_matmuls = mode == Again::matmuls,
                         .check = state_->options.check,
                         .stash = state_->stash},
                        state_->counts);
}

RecomputeCounts Recompute::counts() const {
  return {.segments = state_->counts->segments,
          .again = state_->counts->again,
          .kept = state_->counts->kept};
}

at::Tensor recompute(const SegmentForward& forward, const std::vector<at::Tensor>& inputs,
                     const SegmentOptions& options) {
  return run_as_segment(forward, inputs, options, std::make_shared<SegmentCounts>());
}

}  // namespace braid::memory
