// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

constexpr double no_split = std::numeric_limits<double>::infinity();

// Cost of the blocks [begin, end) as one stage; infinite if they do not fit.
class StageCost {
 public:
  StageCost(const std::vector<double>& costs, const std::vector<double>& memory, double limit)
      : costs_(sums(costs)), memory_(sums(memory)), limit_(limit) {}

  double operator()(size_t begin, size_t end) const {
    const bool fits =
        limit_ <= 0 || memory_.size() <= end || memory_[end] - memory_[begin] <= limit_;
    return fits ? costs_[end] - costs_[begin] : no_split;
  }

 private:
  static std::vector<double> sums(const std::vector<double>& values) {
    std::vector<double> all = {0};
    for (const double value : values) all.push_back(all.back() + value);
    return all;
  }
  std::vector<double> costs_, memory_;
  double limit_;
};

void check_split(const std::vector<double>& costs, int stages, const std::vector<double>& memory) {
  if (stages < 1 || static_cast<size_t>(stages) > costs.size())
    throw ConfigError(
        {.what = fmt::format("{} stages for {} blocks", stages, costs.size()),
         .why = "a stage of a pipeline holds at least one block of the model",
         .fix = fmt::format("take at most {} stages (mesh.pipeline x parallel.chunks), or a model "
                            "with more layers",
                            costs.size())});
  if (!memory.empty() && memory.size() != costs.size())
    throw ConfigError(
        {.what = fmt::format("memory of {} blocks and costs of {}", memory.size(), costs.size()),
         .why = "each block has both",
         .fix = "give a number of each for each block"});
}

[[noreturn]] void refuse_limit(int stages, const std::vector<double>& memory, double limit) {
  const double largest = *std::max_element(memory.begin(), memory.end());
  throw ConfigError(
      {.what = fmt::format("no split into {} stages keeps each within {} of memory", stages, limit),
       .why = fmt::format("the largest block alone needs {}", largest),
       .fix = largest > limit ? "raise the limit" : "take more stages, or raise the limit"});
}

// The bounds of `stages` stages over `blocks` blocks with the least total, and that total.
// `with(total, begin, end)` adds a stage to a total. The first of equal splits wins, so all ranks
// come to the same one.
template <class With>
std::pair<std::vector<int64_t>, double> least_total(size_t blocks, size_t stages, With with) {
  std::vector<double> best(blocks + 1, no_split);  // of the blocks [0, j) in the stages so far
  best[0] = 0;
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(blocks + 1, 0));
  for (size_t s = 1; s <= stages; ++s) {
    std::vector<double> next(blocks + 1, no_split);
    for (size_t j = s; j <= blocks; ++j)
      for (size_t i = s - 1; i < j; ++i)
        if (const double total = with(best[i], i, j); total < next[j]) {
          next[j] = total;
          from[s][j] = i;
        }
    best = std::move(next);
  }
  std::vector<int64_t> bounds(stages + 1, static_cast<int64_t>(blocks));
  for (size_t s = stages; s > 0; --s)
    bounds[s - 1] = static_cast<int64_t>(from[s][static_cast<size_t>(bounds[s])]);
  return {bounds, best[blocks]};
}

}  // namespace

std::vector<int64_t> split_blocks(const std::vector<double>& costs, int stages,
                                  const std::vector<double>& memory, double limit) {
  check_split(costs, stages, memory);
  const StageCost cost(costs, memory, limit);
  const auto count = static_cast<size_t>(stages);
  const double largest = least_total(costs.size(), count, [&](double total, size_t i, size_t j) {
                           return std::max(total, cost(i, j));
                         }).second;
  if (largest == no_split) refuse_limit(stages, memory, limit);
  // Among those, the most even: 3 + 3 + 2 + 2 rather than 3 + 3 + 3 + 1.
  return least_total(costs.size(), count,
                     [&](double total, size_t i, size_t j) {
                       const double one = cost(i, j);
                       return one > largest ? no_split : total + one * one;
                     })
      .first;
}

}  // namespace braid::parallel
