// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/fit.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <optional>
#include <set>

#include "braid/comm/texts.h"
#include "braid/core/accelerator.h"
#include "braid/core/error.h"
#include "braid/train/layout.h"
#include "braid/train/out_of_memory.h"
#include "braid/train/trainer.h"
#include "train/fit_parts.h"

namespace braid::train {
namespace {

using memory::Again;
using parallel::Axis;

constexpr double without_gaps = 0.95;  // of a GPU's memory: its allocator rounds and leaves holes

int64_t available_ram() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    int64_t kibibytes = 0;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return int64_t{::sysconf(_SC_AVPHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
}

// Ranks that share the memory of this host.
int64_t ranks_here(const Ranks& ranks) {
  if (ranks.alone()) return 1;
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  const std::vector<std::string> hosts = comm::exchange_texts(ranks.control, name.data());
  return std::count(hosts.begin(), hosts.end(), std::string(name.data()));
}

parallel::Mesh mesh_of(const RunOptions& options, const MeasureOptions& how) {
  if (how.world == 1) return {};
  return {options.mesh, how.world, how.rank, static_cast<int>(options.train.zero)};
}

int64_t samples_of(const RunOptions& options, const parallel::Mesh& mesh) {
  const int64_t ranks = mesh.batch_ranks();
  return (global_batch_of(options.train, ranks) + ranks - 1) / ranks;
}

int64_t bytes_of_samples(const RunOptions& options, int64_t samples) {
  const data::Batch one = empty_batch(options, 1, c10::kMeta);
  return samples * static_cast<int64_t>(one.input.nbytes() + one.target.nbytes());
}

bool evaluates(const RunOptions& options) {
  return data::has_split(options.data, data::Split::valid) ||
         data::has_split(options.data, data::Split::test);
}

// Sizes that a step can be made of, ascending. A pipeline takes some numbers of micro-batches only.
std::vector<int64_t> micro_sizes(const RunOptions& options, const parallel::Mesh& mesh) {
  const int64_t samples = samples_of(options, mesh);
  std::set<int64_t> sizes;
  if (mesh.size(Axis::pipeline) == 1) {
    for (int64_t size = 1; size <= samples; ++size) sizes.insert(size);
    return {sizes.begin(), sizes.end()};
  }
  for (int64_t micros = 1; micros <= samples; ++micros) {
    RunOptions tried = options;
    tried.train.micro_batch = (samples + micros - 1) / micros;
    try {
      schedule_of(tried, mesh.size(Axis::pipeline), micros_of(tried.train, mesh.batch_ranks()));
      sizes.insert(*tried.train.micro_batch);
    } catch (const ConfigError&) {  // this schedule does not take so many
    }
  }
  return {sizes.begin(), sizes.end()};
}

// How many of the first `count` hold, where those that do come first.
template <class Holds>
size_t first_not(size_t count, const Holds& holds) {
  if (count == 0 || holds(count - 1)) return count;
  size_t yes = 0, no = count - 1;  // `yes` hold, number `no` does not
  while (yes < no) {
    const size_t middle = (yes + no) / 2;
    if (holds(middle))
      yes = middle + 1;
    else
      no = middle;
  }
  return yes;
}

int64_t smallest_of_all(const Ranks& ranks, int64_t mine) {
  if (ranks.alone()) return mine;
  const at::Tensor least = at::full({}, mine, c10::kLong);
  ranks.control.all_reduce(least, comm::Op::min).wait();
  return least.item<int64_t>();
}

std::string bytes_of_room(int64_t peak, const Room& room) {
  return fmt::format("predicted peak {} of {} ({})", to_text(Bytes{peak}),
                     to_text(Bytes{room.whole}), room.of);
}

void choose_micro_batch(Fitted& fitted, const Ranks& ranks, const MeasureOptions& how,
                        const Room& room) {
  RunOptions& options = fitted.options;
  const bool budget = options.memory.recompute == Again::budget;
  RunOptions plain = options;
  if (budget) plain.memory.recompute = Again::none;  // less is computed again with smaller ones
  const int64_t mine = largest_micro_batch(plain, how, room.bytes);
  int64_t size = smallest_of_all(ranks, mine);
  if (size == 0 && budget) size = 1;
  options.train.micro_batch = std::max<int64_t>(size, 1);
  if (size == 0) throw nothing_fits(options, ranks, room, mine == 0);
  const std::string chosen = fmt::format("micro_batch auto: {} of {} samples", size,
                                         samples_of(options, mesh_of(options, how)));
  fitted.lines.push_back(
      budget
          ? chosen
          : fmt::format("{}, {}", chosen, bytes_of_room(predict_peak(options, how).bytes, room)));
}

// Moves of a plan that every rank of a stage needs: the ranks of a stage compute again together.
int64_t most_moves(const RunOptions& options, const Ranks& ranks, int64_t mine) {
  if (ranks.alone()) return mine;
  const std::vector<std::string> all = comm::exchange_texts(ranks.control, std::to_string(mine));
  int64_t most = mine;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const parallel::Mesh there(options.mesh, ranks.mesh.world(), static_cast<int64_t>(rank),
                               static_cast<int>(options.train.zero));
    if (there.index(Axis::pipeline) == ranks.mesh.index(Axis::pipeline))
      most = std::max<int64_t>(most, std::stoll(all[rank]));
  }
  return most;
}

MemoryError budget_too_small(const RecomputePlan& plan, int64_t budget, const Ranks& ranks) {
  return MemoryError(
      {.what = fmt::format("{}memory.recompute = budget: with all blocks computed again a step "
                           "still takes {} bytes, {} more than the {} that it may",
                           ranks.alone() ? "" : fmt::format("rank {}: ", ranks.mesh.rank()),
                           with_commas(plan.peak), with_commas(plan.peak - budget),
                           with_commas(budget)),
       .why = "what is left are weights, gradients, states and one block at a time",
       .fix = fmt::format("--set memory.budget={}, or a smaller train.micro_batch",
                          exact_text(Bytes{plan.peak}))});
}

void choose_recompute(Fitted& fitted, const Ranks& ranks, const MeasureOptions& how,
                      const Room& room) {
  RunOptions& options = fitted.options;
  const int64_t budget = room.bytes;
  RecomputePlan plan = recompute_plan(options, how, budget);
  if (smallest_of_all(ranks, plan.fits ? 1 : 0) == 0) {
    if (!plan.fits) throw budget_too_small(plan, budget, ranks);
    throw MemoryError({.what = "the step of another rank does not fit into memory.budget",
                       .why = "all ranks train, or none",
                       .fix = "see what that rank says"});
  }
  const int64_t moves = most_moves(options, ranks, plan.moves);
  if (moves != plan.moves) plan = recompute_plan(options, how, budget, moves);
  options.memory.plan = plan.blocks;
  int64_t whole = 0;
  for (const auto& [block, what] : plan.blocks) whole += what == Again::blocks ? 1 : 0;
  fitted.lines.push_back(
      fmt::format("recompute budget: {} blocks ({} of them whole), predicted peak {} of {}",
                  plan.blocks.size(), whole, to_text(Bytes{plan.peak}), to_text(Bytes{budget})));
}

}  // namespace

int64_t shorten(RunOptions& options, const MeasureOptions& how) {
  const parallel::Mesh mesh = mesh_of(options, how);
  const int64_t samples = samples_of(options, mesh);
  const int64_t micro = options.train.micro_batch.value_or(samples);
  if (mesh.size(Axis::pipeline) > 1 || micro == 0) return 0;
  const int64_t few = std::max(3 * micro, std::min(samples, options.valid.batch.value_or(0)));
  if (samples <= few) return 0;
  options.train.global_batch.reset();
  options.train.local_batch = few;
  return how.batches() * bytes_of_samples(options, samples - few);
}

Room room_of(const RunOptions& options, c10::Device device, const Ranks& ranks) {
  const int64_t limit = options.memory.limit.count;
  if (!device.is_cuda()) {
    if (limit > 0) return {.bytes = limit, .whole = limit, .of = "memory.limit"};
    const int64_t sharing = ranks_here(ranks), bytes = available_ram() / sharing;
    return {.bytes = bytes,
            .whole = bytes,
            .of = sharing == 1 ? "the host's available memory"
                               : fmt::format("the host's available memory, 1/{}", sharing)};
  }
  Accelerator* gpu = accelerator();
  const int64_t free = gpu == nullptr ? limit : gpu->free_bytes(device.index());
  const int64_t whole = limit > 0 ? std::min(limit, free) : free;
  return {.bytes = static_cast<int64_t>(without_gaps * static_cast<double>(whole)),
          .whole = whole,
          .of = limit > 0 && limit <= free ? "memory.limit"
                                           : fmt::format("free on cuda:{}", device.index())};
}

MeasureOptions measure_as(const RunOptions& options, const Ranks& ranks) {
  return {.device = device_of(options.train, ranks.gpu),
          .world = ranks.mesh.world(),
          .rank = ranks.mesh.rank()};
}

Predicted predict_peak(const RunOptions& options, const MeasureOptions& how) {
  RunOptions measured = options;
  const int64_t more = shorten(measured, how);
  Measured step = measure(measured, how);
  Predicted predicted;
  for (const memory::Operator& op : step.log.operators())
    if (op.recomputed) predicted.recomputed_flops += op.flops;
  memory::Peak* highest = &step.second_step.peak;
  if (step.first_step.peak.bytes > highest->bytes) highest = &step.first_step.peak;
  if (evaluates(options) && step.evaluation.peak.bytes > highest->bytes)
    highest = &step.evaluation.peak;
  predicted.peak = std::move(*highest);
  predicted.bytes = predicted.peak.bytes + more;
  return predicted;
}

// A size of more than half of the samples makes one full pass before there are gradients and a
// smaller one beside them; one that fits may be larger than one that does not. So the first pass is
// looked at by itself, then the whole step.
int64_t largest_micro_batch(const RunOptions& options, const MeasureOptions& how, int64_t room) {
  const parallel::Mesh mesh = mesh_of(options, how);
  const std::vector<int64_t> sizes = micro_sizes(options, mesh);
  const auto fits = [&](size_t i) {
    RunOptions tried = options;
    tried.train.micro_batch = sizes[i];
    return predict_peak(tried, how).bytes <= room;
  };
  size_t count = sizes.size();
  if (mesh.size(Axis::pipeline) == 1) {
    const int64_t samples = samples_of(options, mesh);
    count = first_not(count, [&](size_t i) {
      RunOptions tried = options;
      tried.train.global_batch.reset();
      tried.train.local_batch = sizes[i];
      tried.train.micro_batch.reset();
      const int64_t others = how.batches() * bytes_of_samples(options, samples - sizes[i]);
      return predict_peak(tried, how).bytes + others <= room;
    });
    if (count > 0 && fits(count - 1)) return sizes[count - 1];
    count = std::min(count, static_cast<size_t>(samples / 2));
  }
  count = first_not(count, fits);
  return count == 0 ? 0 : sizes[count - 1];
}

Fitted fit_to_memory(const RunOptions& options, const Ranks& ranks) {
  Fitted fitted{.options = options, .lines = {}};
  const bool micro = options.train.micro_batch == 0;
  const bool budget = options.memory.recompute == Again::budget;
  if (!micro && !budget) return fitted;
  const MeasureOptions how = measure_as(options, ranks);
  Room room = room_of(options, how.device, ranks);
  if (budget && options.memory.budget.count > 0)
    room.bytes = std::min(room.bytes, options.memory.budget.count);
  if (micro) choose_micro_batch(fitted, ranks, how, room);
  if (budget) choose_recompute(fitted, ranks, how, room);
  return fitted;
}

}  // namespace braid::train
