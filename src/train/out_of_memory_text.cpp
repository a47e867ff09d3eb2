// SPDX-License-Identifier: BSD-3-Clause
// The report as people and as programs read it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "braid/core/units.h"
#include "braid/train/out_of_memory.h"

namespace braid::train {
namespace {

constexpr size_t listed_modules = 8, listed_tensors = 3, listed_in_json = 50;

std::string sized(int64_t bytes) { return to_text(Bytes{bytes}); }

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// blocks.11.attn -> blocks.*.attn: the layers of a model are alike.
std::string numberless(const std::string& path) {
  std::string text;
  for (const char c : path) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit)
      text += c;
    else if (text.empty() || text.back() != '*')
      text += '*';
  }
  return text.empty() ? "(outside of modules)" : text;
}

std::vector<std::pair<std::string, int64_t>> largest_modules(const memory::Peak& peak) {
  std::map<std::string, int64_t> sums;
  for (const auto& [module, bytes] : peak.by_module) sums[numberless(module)] += bytes;
  std::vector<std::pair<std::string, int64_t>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

std::string head_of(const MemoryReport& report) {
  const NoRoom& failed = report.failed;
  const std::string who = report.ranks == 1 ? "" : fmt::format(", rank {}", report.rank);
  std::string text = fmt::format("out of memory on {}{}{}\n", report.device, who,
                                 failed.during.empty() ? "" : ", in " + failed.during);
  if (failed.asked.bytes > 0 || !failed.asked.op.empty())
    text += fmt::format("  did not fit  {}{}{}\n", sized(failed.asked.bytes),
                        failed.asked.op.empty() ? "" : " for " + failed.asked.op,
                        failed.asked.module.empty() ? "" : " of " + failed.asked.module);
  else if (!failed.said.empty())
    text += fmt::format("  said         {}\n", failed.said);
  text += fmt::format("  limit        {} ({})\n", sized(failed.limit), failed.limit_of);
  if (!report.predicted)
    return text +
           "  predicted    nothing: the model is the program's own, and cannot run dry here\n";
  const memory::Peak& peak = report.predicted->peak;
  return text + fmt::format("  predicted    {} at the peak of a step, in {}{}\n",
                            sized(report.predicted->bytes), peak.op,
                            peak.module.empty() ? "" : " of " + peak.module);
}

std::string alive_text(const NoRoom& failed) {
  const memory::Peak& alive = failed.alive;
  if (!failed.counted && alive.bytes == 0)
    return "  alive        not counted (with memory.limit it is)\n";
  std::string text =
      fmt::format("  alive        {}{}\n", sized(alive.bytes),
                  failed.counted ? "" : " (peak of a dry run of this step: nobody counted)");
  for (int kind = 0; kind < memory_kinds; ++kind)
    if (alive.by_kind[static_cast<size_t>(kind)] > 0)
      text += fmt::format("    {:<18} {:>11} {:>5.1f} %\n", to_text(static_cast<MemoryKind>(kind)),
                          sized(alive.by_kind[static_cast<size_t>(kind)]),
                          percent(alive.by_kind[static_cast<size_t>(kind)], alive.bytes));
  text += "  by module\n";
  const auto modules = largest_modules(alive);
  for (size_t i = 0; i < std::min(listed_modules, modules.size()); ++i)
    text += fmt::format("    {:>11}  {}\n", sized(modules[i].second), modules[i].first);
  text += "  largest\n";
  for (size_t i = 0; i < std::min(listed_tensors, alive.alive.size()); ++i)
    text += fmt::format("    {:>11}  {} {} {}\n", sized(alive.alive[i].bytes),
                        to_text(alive.alive[i].kind), alive.alive[i].op, alive.alive[i].module);
  return text;
}

std::string allocator_text(const DeviceMemory& memory) {
  if (memory.reserved == 0) return "";
  return fmt::format(
      "  allocator    {} reserved, {} of it in use after the failure; largest free piece {}\n",
      sized(memory.reserved), sized(memory.allocated), sized(memory.largest_free));
}

std::string changes_text(const MemoryReport& report) {
  const std::vector<Change>& changes = report.changes;
  if (!report.predicted)
    return "  try a smaller train.micro_batch, memory.recompute or memory.offload: what they save "
           "of "
           "this model is not known\n";
  if (changes.empty()) return "  no change of this config takes less memory\n";
  std::string text = "  with these changes a step would take\n";
  for (const Change& change : changes)
    text += fmt::format("    {:>11} {:<12}  {}{}\n", sized(change.peak),
                        change.fits ? "fits" : "does not fit", change.sets,
                        change.costs.empty() ? "" : "  (" + change.costs + ")");
  return text;
}

nlohmann::json held_json(const memory::Held& held) {
  return {{"bytes", held.bytes},
          {"kind", std::string(to_text(held.kind))},
          {"module", held.module},
          {"operator", held.op}};
}

nlohmann::json alive_json(const memory::Peak& alive) {
  nlohmann::json kinds = nlohmann::json::object(), modules = nlohmann::json::object(),
                 largest = nlohmann::json::array();
  for (int kind = 0; kind < memory_kinds; ++kind)
    kinds[std::string(to_text(static_cast<MemoryKind>(kind)))] =
        alive.by_kind[static_cast<size_t>(kind)];
  for (const auto& [module, bytes] : alive.by_module) modules[module] = bytes;
  for (size_t i = 0; i < std::min(listed_in_json, alive.alive.size()); ++i)
    largest.push_back(held_json(alive.alive[i]));
  return {{"bytes", alive.bytes},
          {"by_kind", std::move(kinds)},
          {"by_module", std::move(modules)},
          {"largest", std::move(largest)}};
}

}  // namespace

std::string to_text(const MemoryReport& report) {
  std::string text = head_of(report) + alive_text(report.failed) +
                     allocator_text(report.failed.allocator) + changes_text(report);
  text.pop_back();  // the log ends the line
  return text;
}

std::string to_json(const MemoryReport& report) {
  const NoRoom& failed = report.failed;
  nlohmann::json changes = nlohmann::json::array();
  for (const Change& change : report.changes)
    changes.push_back({{"set", change.sets},
                       {"costs", change.costs},
                       {"peak", change.peak},
                       {"fits", change.fits}});
  nlohmann::json json = {
      {"rank", report.rank},
      {"ranks", report.ranks},
      {"device", report.device},
      {"during", failed.during},
      {"said", failed.said},
      {"asked", held_json(failed.asked)},
      {"limit", failed.limit},
      {"limit_of", failed.limit_of},
      {"alive", alive_json(failed.alive)},
      {"counted", failed.counted},
      {"predicted_peak",
       report.predicted ? nlohmann::json(report.predicted->bytes) : nlohmann::json()},
      {"changes", std::move(changes)},
      {"seconds", report.seconds}};
  if (failed.allocator.reserved > 0)
    json["allocator"] = {{"allocated", failed.allocator.allocated},
                         {"reserved", failed.allocator.reserved},
                         {"largest_free", failed.allocator.largest_free}};
  return json.dump(2);
}

}  // namespace braid::train
