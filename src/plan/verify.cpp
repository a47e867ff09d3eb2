// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "braid/core/accelerator.h"
#include "braid/core/observe.h"
#include "braid/core/units.h"
#include "braid/plan/cost.h"
#include "braid/plan/layout.h"
#include "braid/plan/simulate.h"
#include "braid/train/life.h"
#include "braid/train/measure.h"
#include "plan/layout_memory.h"

namespace braid::plan {
namespace {

constexpr const char* without_scratch = "  without scratch of kernels";

void add_bytes(Verified& seen, const std::string& name, int64_t predicted, int64_t measured,
               bool judged) {
  seen.rows.push_back({.name = name,
                       .predicted = static_cast<double>(predicted),
                       .measured = static_cast<double>(measured),
                       .bytes = true,
                       .judged = judged});
}

// This very rank, dry: a layout's plan has the fullest of its stage.
RankMemory predicted_memory(const train::RunOptions& options, const Verified& seen,
                            const LayoutOptions& how) {
  MemoryOfLife memory(options, how);
  const train::Life life =
      train::live(options, {.device = how.device, .world = seen.world, .rank = seen.rank},
                  {.trace = false,
                   .after = [&](std::string_view part, const memory::Ledger& ledger,
                                const train::Life& so_far) { memory.add(part, ledger, so_far); }});
  return memory.finish(life);
}

void add_kinds(Verified& seen, const memory::Peak& predicted, const memory::Peak& measured) {
  for (int kind = 0; kind < memory_kinds; ++kind) {
    const auto i = static_cast<size_t>(kind);
    if (predicted.by_kind[i] != 0 || measured.by_kind[i] != 0)
      add_bytes(seen, fmt::format("  {}", to_text(static_cast<MemoryKind>(kind))),
                predicted.by_kind[i], measured.by_kind[i], /*judged=*/false);
  }
}

void add_peaks(Verified& seen, const RankMemory& predicted, const train::Life& real) {
  const auto add = [&](const char* name, const MomentBytes& dry, const train::Phase& phase) {
    if (dry.allocated > 0 || phase.peak.bytes > 0)
      add_bytes(seen, name, dry.allocated, phase.peak.bytes, /*judged=*/true);
    // Scratch of a kernel depends on the machine; all else has to be the same.
    if (dry.allocated != phase.peak.bytes)
      add_bytes(seen, without_scratch, dry.without_scratch, phase.without_scratch.bytes,
                /*judged=*/true);
  };
  add("first step", predicted.first_step, real.first_step);
  add("later steps", predicted.steady_step, real.step);
  add_kinds(seen, predicted.steady_step.peak, real.step.peak);
  add("checkpoint", predicted.checkpoint, real.checkpoint);
  add("evaluation", predicted.evaluation, real.evaluation);
}

double middle_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

// Of one process: the steps of many wait for each other, and `braid profile` tells how long.
void add_time(Verified& seen, const train::RunOptions& options, const VerifyOptions& how,
              const LayoutOptions& dry) {
  VerifyRow row{.name = "time of a step", .bytes = false};
  if (how.cluster != nullptr && how.device.is_cuda())
    row.predicted = simulate(dry_layout(options, seen.world, dry),
                             cost_model(*how.cluster, options, seen.world))
                        .seconds;
  if (seen.world == 1) row.measured = middle_of(train::time_steps(options, how.device, how.steps));
  if (row.predicted > 0 || row.measured > 0) seen.rows.push_back(row);
}

std::string value_text(const VerifyRow& row, double value) {
  if (!row.bytes) return value > 0 ? to_text(Seconds{value}) : std::string("-");
  return with_commas(static_cast<int64_t>(value));
}

std::string off_text(const VerifyRow& row) {
  if (row.predicted == row.measured) return "exact";
  if (row.predicted <= 0 || (!row.bytes && row.measured <= 0)) return "-";
  return fmt::format("{:+.2f} %", 100 * row.off());
}

}  // namespace

double VerifyRow::off() const {
  if (predicted == measured) return 0;
  return predicted > 0 ? measured / predicted - 1 : INFINITY;
}

bool Verified::holds(double share) const {
  return std::all_of(rows.begin(), rows.end(), [&](const VerifyRow& row) {
    return !row.judged || std::abs(row.off()) <= share;
  });
}

Verified verify(const train::RunOptions& options, const VerifyOptions& how) {
  const train::Ranks alone;
  const train::Ranks& ranks = how.ranks != nullptr ? *how.ranks : alone;
  Verified seen;
  seen.rank = ranks.mesh.rank();
  seen.world = ranks.mesh.world();
  seen.device = how.device.is_cuda() ? accelerator()->name(how.device.index()) : "cpu";
  seen.layout = ranks.alone() ? "one process" : parallel::to_text(ranks.mesh);
  LayoutOptions dry;
  dry.device = how.device;
  if (how.cluster != nullptr) {
    dry.context = how.cluster->gpu.context.count;
    dry.gemm_workspace = how.cluster->gpu.gemm_workspace.count;
  }
  const RankMemory predicted = predicted_memory(options, seen, dry);
  const train::Life real = train::live(
      options, {.device = how.device, .dry = false, .ranks = ranks.alone() ? nullptr : &ranks},
      {.trace = false});
  add_peaks(seen, predicted, real);
  if (how.device.is_cuda())
    add_bytes(seen, "reserved by the allocator", predicted.reserved,
              accelerator()->peak_reserved(how.device.index()), /*judged=*/true);
  add_time(seen, options, how, dry);
  return seen;
}

std::string to_text(const Verified& seen) {
  std::string text = fmt::format("rank {} of {} on {}, {}\n{:<28} {:>18} {:>18} {:>10}\n{:-<77}\n",
                                 seen.rank, seen.world, seen.device, seen.layout, "bytes",
                                 "predicted", "measured", "off", "");
  for (const VerifyRow& row : seen.rows)
    text += fmt::format("{:<28} {:>18} {:>18} {:>10}\n", row.name, value_text(row, row.predicted),
                        value_text(row, row.measured), off_text(row));
  return text;
}

std::string to_json(const Verified& seen) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const VerifyRow& row : seen.rows) {
    const std::string name = row.name.substr(row.name.find_first_not_of(' '));
    rows.push_back({{"name", name},
                    {"unit", row.bytes ? "bytes" : "seconds"},
                    {"predicted", row.predicted},
                    {"measured", row.measured},
                    {"judged", row.judged}});
  }
  return nlohmann::ordered_json{{"rank", seen.rank},     {"world", seen.world},
                                {"device", seen.device}, {"layout", seen.layout},
                                {"holds", seen.holds()}, {"rows", std::move(rows)}}
      .dump();
}

}  // namespace braid::plan
