// SPDX-License-Identifier: BSD-3-Clause
// Changes of a config that take less memory, each with the peak of its own dry run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>

#include "braid/core/error.h"
#include "braid/train/fit.h"
#include "braid/train/layout.h"

namespace braid::train {
namespace {

using memory::Again;

// A config on its way to a smaller one.
struct Variant {
  RunOptions options;
  int64_t world = 1, rank = 0;
  std::string sets, costs;
};

using Edit = std::function<bool(Variant&)>;  // false: it changes nothing here

void say(Variant& variant, const std::string& sets, const std::string& costs) {
  variant.sets += (variant.sets.empty() ? "" : " ") + sets;
  variant.costs += (variant.costs.empty() || costs.empty() ? "" : "; ") + costs;
}

int64_t rows_of(const Variant& variant) {
  const int64_t ranks = variant.world == 1
                            ? 1
                            : parallel::Mesh(variant.options.mesh, variant.world, variant.rank,
                                             static_cast<int>(variant.options.train.zero))
                                  .batch_ranks();
  return (global_batch_of(variant.options.train, ranks) + ranks - 1) / ranks;
}

int64_t micro_now(const Variant& variant) {
  const int64_t rows = rows_of(variant), micro = variant.options.train.micro_batch.value_or(rows);
  return micro == 0 ? rows : std::min(micro, rows);
}

Edit micro_batch(int64_t size) {
  return [size](Variant& variant) {
    if (size >= micro_now(variant)) return false;
    variant.options.train.micro_batch = size;
    say(variant, fmt::format("--set train.micro_batch={}", size),
        "same result, more and smaller passes");
    return true;
  };
}

Edit recompute(Again what, const char* word, const char* costs) {
  return [=](Variant& variant) {
    const Again now = variant.options.memory.recompute;
    const auto rank = [](Again again) {
      return again == Again::none        ? 0
             : again == Again::attention ? 1
             : again == Again::matmuls   ? 2
                                         : 3;
    };
    if (rank(now) >= rank(what)) return false;
    variant.options.memory.recompute = what;
    say(variant, fmt::format("--set memory.recompute={}", word), costs);
    return true;
  };
}

Edit zero(int64_t stage) {
  return [stage](Variant& variant) {
    if (variant.options.train.zero >= stage) return false;
    const bool alone = variant.world == 1;
    if (alone) variant.world = 2;
    if (!alone && variant.options.mesh.data) {  // these ranks share out instead of repeating
      variant.options.mesh.shard =
          *variant.options.mesh.data * variant.options.mesh.shard.value_or(1);
      variant.options.mesh.data = 1;
      say(variant,
          fmt::format("--set mesh.data=1 --set mesh.shard={}", *variant.options.mesh.shard), "");
    }
    variant.options.train.zero = stage;
    say(variant, fmt::format("{}--set train.zero={}", alone ? "--ranks 2 " : "", stage),
        stage == 3 ? "half as much traffic again" : "the same traffic");
    return true;
  };
}

Edit offload(const char* what, const char* costs) {
  return [=](Variant& variant) {
    if (variant.options.memory.offloads(what)) return false;
    std::vector<std::string>& all = variant.options.memory.offload;
    all.emplace_back(what);
    std::string list;
    for (const std::string& part : all) list += (list.empty() ? "" : ",") + part;
    say(variant, fmt::format("--set 'memory.offload=[{}]'", list), costs);
    return true;
  };
}

Edit tensor() {
  return [](Variant& variant) {
    const bool alone = variant.world == 1;
    if (alone) variant.world = 2;
    if (variant.options.mesh.tensor * 2 > variant.world) return false;
    variant.options.mesh.tensor *= 2;
    if (variant.options.mesh.data && *variant.options.mesh.data % 2 == 0)
      *variant.options.mesh.data /= 2;
    say(variant,
        fmt::format("{}--set mesh.tensor={}", alone ? "--ranks 2 " : "",
                    variant.options.mesh.tensor),
        "two sums over ranks a layer and pass");
    return true;
  };
}

// Cheapest first.
struct NamedEdits {
  Edit attention = recompute(Again::attention, "attention", "a few percent more FLOPs");
  Edit matmuls = recompute(Again::matmuls, "matmuls", "up to a sixth more FLOPs");
  Edit blocks = recompute(Again::blocks, "blocks", "a third more FLOPs");
  Edit optimizer = offload("optimizer", "the host updates the weights");
  Edit activations = offload("activations", "activations travel to the host and back");
};

class Search {
 public:
  Search(const RunOptions& options, const MeasureOptions& how, int64_t room, double seconds)
      : options_(options), how_(how), room_(room), seconds_(seconds) {
    options_.memory.plan.clear();
    if (options_.memory.recompute == Again::budget) options_.memory.recompute = Again::none;
  }

  bool try_all(const std::vector<Edit>& edits) {
    if (spent() > seconds_) return false;
    Variant variant{
        .options = options_, .world = how_.world, .rank = how_.rank, .sets = {}, .costs = {}};
    bool changed = false;
    for (const Edit& edit : edits) changed = edit(variant) || changed;
    if (!changed) return false;
    const std::optional<int64_t> peak = peak_of(variant);
    if (!peak) return false;
    changes.push_back(
        {.sets = variant.sets, .costs = variant.costs, .peak = *peak, .fits = *peak <= room_});
    return changes.back().fits;
  }

  // Halves until it fits; only the last one tried is told.
  void try_micro_batches() {
    const Variant now{
        .options = options_, .world = how_.world, .rank = how_.rank, .sets = {}, .costs = {}};
    for (int64_t size = micro_now(now) / 2; size >= 1; size /= 2) {
      const size_t before = changes.size();
      const bool fits = try_all({micro_batch(size)});
      if (fits || size == 1 || changes.size() == before) return;
      changes.pop_back();
    }
  }

  double spent() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  std::vector<Change> changes;

 private:
  std::optional<int64_t> peak_of(const Variant& variant) const {
    try {
      check(variant.options);
      const parallel::Mesh mesh(variant.options.mesh, variant.world, variant.rank,
                                static_cast<int>(variant.options.train.zero));
      check_layout(variant.options, mesh);
      return predict_peak(variant.options,
                          {.device = how_.device, .world = variant.world, .rank = variant.rank})
          .bytes;
    } catch (const ConfigError&) {  // this model or mesh cannot do it
      return std::nullopt;
    }
  }

  RunOptions options_;
  MeasureOptions how_;
  int64_t room_;
  double seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::vector<Change> changes_to_fit(const RunOptions& options, const MeasureOptions& how,
                                   int64_t room, double seconds) {
  Search search(options, how, room, seconds);
  const NamedEdits edit;
  search.try_micro_batches();
  search.try_all({edit.attention});
  search.try_all({edit.matmuls});
  for (const int64_t stage : {1, 2, 3}) search.try_all({zero(stage)});
  if (how.device.is_cuda()) search.try_all({edit.activations});
  search.try_all({edit.blocks});
  if (how.device.is_cuda()) search.try_all({edit.optimizer});
  search.try_all({tensor()});
  const auto found = [&] {
    return std::any_of(search.changes.begin(), search.changes.end(),
                       [](const Change& change) { return change.fits; });
  };
  if (found()) return search.changes;
  std::vector<Edit> together = {micro_batch(1), edit.blocks};
  search.try_all(together);
  if (how.device.is_cuda() && !found()) {
    together.push_back(edit.optimizer);
    search.try_all(together);
    together.push_back(edit.activations);
    if (!found()) search.try_all(together);
  }
  if (!found()) search.try_all({micro_batch(1), edit.blocks, zero(3)});
  if (!found()) search.try_all({micro_batch(1), edit.blocks, tensor()});
  return search.changes;
}

}  // namespace braid::train
