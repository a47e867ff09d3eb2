// SPDX-License-Identifier: BSD-3-Clause
// What is computed again for a budget of bytes. Each block has four levels, from nothing over its
// attention and every second matmul to all of it; a move takes one block up. Moves stand in the
// order of bytes saved a FLOP spent, and the shortest prefix of them that fits is taken: by dry
// runs, so that the peak is that of training.
#include <algorithm>
#include <map>
#include <tuple>

#include "braid/train/fit.h"
#include "train/fit_parts.h"

namespace braid::train {
namespace {

using memory::Again;
using Plan = std::map<std::string, Again>;

constexpr Again levels[] = {Again::none, Again::attention, Again::matmuls, Again::blocks};
constexpr int64_t few_moves = 40;  // so many dry runs are done one by one

struct LevelCost {
  Again what = Again::none;
  double flops = 0;  // computed again
  int64_t kept = 0;  // bytes at the peak
};

struct BlockMove {
  std::string block;
  Again to = Again::none;
  double saved = 0;  // bytes a FLOP
};

bool belongs_to(const std::string& module, const std::string& block) {
  return module == block ||
         (module.size() > block.size() && module.starts_with(block) && module[block.size()] == '.');
}

RunOptions with_plan(const RunOptions& options, Plan plan) {
  RunOptions changed = options;
  changed.memory.recompute = Again::budget;
  changed.memory.plan = std::move(plan);
  return changed;
}

// All blocks at each level: what a block keeps and what it computes again.
class LevelRuns {
 public:
  LevelRuns(const RunOptions& options, const MeasureOptions& how,
            const std::vector<std::string>& blocks)
      : blocks_(blocks) {
    for (const Again what : levels) {
      Plan plan;
      for (const std::string& block : blocks) plan[block] = what;
      RunOptions run = with_plan(options, plan);
      shorten(run, how);
      runs_.push_back(measure(run, how));
    }
  }

  // Blocks alike cost alike: near the peak one of them may be half done, so they are looked at
  // together.
  std::map<double, std::vector<std::string>> alike() const {
    std::map<double, std::vector<std::string>> groups;
    for (const std::string& block : blocks_)
      groups[flops(0, block, [](const memory::Operator& op) { return !op.backward; })].push_back(
          block);
    return groups;
  }

  std::vector<LevelCost> costs(const std::vector<std::string>& group) const {
    std::vector<LevelCost> all;
    for (size_t level = 0; level < std::size(levels); ++level) {
      LevelCost cost{.what = levels[level]};
      for (const std::string& block : group) {
        const int64_t bytes = kept(level, block);
        const bool first = block == group.front();
        cost.kept = first        ? bytes
                    : level == 0 ? std::max(cost.kept, bytes)
                                 : std::min(cost.kept, bytes);
        cost.flops =
            std::max(cost.flops,
                     flops(level, block, [](const memory::Operator& op) { return op.recomputed; }));
      }
      all.push_back(cost);
    }
    return all;
  }

 private:
  template <class Which>
  double flops(size_t level, const std::string& block, const Which& which) const {
    double sum = 0;
    for (const memory::Operator& op : runs_[level].log.operators())
      if (which(op) && belongs_to(op.module, block)) sum += op.flops;
    return sum;
  }

  int64_t kept(size_t level, const std::string& block) const {
    int64_t sum = 0;
    for (const memory::Held& held : runs_[level].second_step.peak.alive)
      if (held.kind == MemoryKind::activation && belongs_to(held.module, block)) sum += held.bytes;
    return sum;
  }

  const std::vector<std::string>& blocks_;
  std::vector<Measured> runs_;
};

// Steps from level to level, each saving more bytes a FLOP than those after it.
std::vector<BlockMove> steepest(const std::vector<LevelCost>& costs) {
  std::vector<BlockMove> moves;
  for (size_t at = 0; at + 1 < costs.size();) {
    size_t best = at;
    double most = 0;
    for (size_t next = at + 1; next < costs.size(); ++next) {
      const auto bytes = static_cast<double>(costs[at].kept - costs[next].kept);
      const double spent = std::max(costs[next].flops - costs[at].flops, 1.0);
      if (bytes > 0 && bytes / spent >= most) {
        most = bytes / spent;
        best = next;
      }
    }
    if (best == at) break;
    moves.push_back({.block = {}, .to = costs[best].what, .saved = most});
    at = best;
  }
  // Whatever the numbers: the last resort is all of the block.
  if (moves.empty() || moves.back().to != Again::blocks)
    moves.push_back({.block = {}, .to = Again::blocks, .saved = 0});
  return moves;
}

// As the first rank of the stage sees them, so that all ranks of the stage have the same.
std::vector<BlockMove> moves_of(const RunOptions& options, const MeasureOptions& how) {
  MeasureOptions first = how;
  if (how.world > 1) {
    using parallel::Axis;
    const parallel::Mesh mesh(options.mesh, how.world, how.rank,
                              static_cast<int>(options.train.zero));
    first.rank =
        mesh.ranks_of({Axis::data, Axis::shard, Axis::tensor, Axis::context, Axis::expert}).front();
  }
  const std::vector<std::string> blocks = segment_names(options, first);
  const LevelRuns runs(options, first, blocks);
  std::vector<std::tuple<double, size_t, BlockMove>> ordered;
  for (const auto& [flops, group] : runs.alike()) {
    const std::vector<BlockMove> moves = steepest(runs.costs(group));
    for (const std::string& block : group)
      for (BlockMove move : moves) {
        move.block = block;
        const auto place = std::find(blocks.begin(), blocks.end(), block) - blocks.begin();
        ordered.emplace_back(-move.saved, static_cast<size_t>(place), std::move(move));
      }
  }
  // Early blocks first: while a block is computed again, those after it are done.
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::vector<BlockMove> moves;
  for (auto& [saved, place, move] : ordered) moves.push_back(std::move(move));
  return moves;
}

class Prefixes {
 public:
  Prefixes(const RunOptions& options, const MeasureOptions& how, std::vector<BlockMove> moves)
      : options_(options), how_(how), moves_(std::move(moves)) {}

  int64_t size() const { return static_cast<int64_t>(moves_.size()); }

  RecomputePlan plan(int64_t count, int64_t bytes) {
    RecomputePlan plan{.blocks = first(count), .peak = peak(count), .moves = count};
    plan.fits = plan.peak <= bytes;
    return plan;
  }

  // The shortest one that fits; all moves if none does.
  int64_t shortest(int64_t least, int64_t bytes) {
    if (size() - least <= few_moves) {
      for (int64_t count = least; count < size(); ++count)
        if (peak(count) <= bytes) return count;
      return size();
    }
    if (peak(least) <= bytes) return least;
    int64_t below = least, above = size();
    while (above - below > 1) {
      const int64_t middle = (below + above) / 2;
      (peak(middle) <= bytes ? above : below) = middle;
    }
    return above;
  }

 private:
  Plan first(int64_t count) const {
    Plan plan;
    for (int64_t i = 0; i < count; ++i) {
      const BlockMove& move = moves_[static_cast<size_t>(i)];
      plan[move.block] = move.to;
    }
    return plan;
  }

  int64_t peak(int64_t count) {
    const auto known = peaks_.find(count);
    if (known != peaks_.end()) return known->second;
    return peaks_[count] = predict_peak(with_plan(options_, first(count)), how_).bytes;
  }

  const RunOptions& options_;
  const MeasureOptions& how_;
  std::vector<BlockMove> moves_;
  std::map<int64_t, int64_t> peaks_;
};

}  // namespace

RecomputePlan recompute_plan(const RunOptions& options, const MeasureOptions& how, int64_t bytes,
                             int64_t moves) {
  Prefixes nothing(options, how, {});
  if (moves == 0 && nothing.plan(0, bytes).fits) return nothing.plan(0, bytes);
  Prefixes prefixes(options, how, moves_of(options, how));
  return prefixes.plan(prefixes.shortest(std::min(moves, prefixes.size()), bytes), bytes);
}

}  // namespace braid::train
