// SPDX-License-Identifier: BSD-3-Clause
#include "cli/inspect_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "braid/core/units.h"

namespace braid::cli {
namespace {

constexpr size_t modules_shown = 12, tensors_shown = 3;

std::string bytes_text(int64_t bytes) { return to_text(Bytes{bytes}); }

// blocks.11.attn -> blocks.*.attn: the layers of a model are alike.
std::string without_numbers(const std::string& path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(path[i])) != 0;
    if (!digit)
      text += path[i];
    else if (text.empty() || text.back() != '*')
      text += '*';
  }
  return text.empty() ? "(outside of modules)" : text;
}

std::vector<std::pair<std::string, int64_t>> by_module(const memory::Peak& peak) {
  std::map<std::string, int64_t> sums;
  for (const auto& [module, bytes] : peak.by_module) sums[without_numbers(module)] += bytes;
  std::vector<std::pair<std::string, int64_t>> sorted(sums.begin(), sums.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

struct NamedPhase {
  const char* name;
  const char* key;
  const train::Phase& phase;
};

std::vector<NamedPhase> phases(const train::Measured& m) {
  return {{"forward and backward", "backward", m.backward},
          {"first step", "first_step", m.first_step},
          {"later steps", "step", m.second_step},
          {"evaluation", "evaluation", m.evaluation}};
}

void try_change(MemoryView& view, train::RunOptions changed, std::string change,
                c10::Device device) {
  view.savings.push_back(
      {std::move(change), train::measure(changed, {.device = device}).second_step.peak.bytes});
}

void try_narrow_stream(MemoryView& view, const train::RunOptions& options, c10::Device device) {
  const Precision policy = train::policy_of(options.train);
  const bool wide = c10::elementSize(policy.stream) > c10::elementSize(policy.compute);
  const bool plain =
      options.model.name == nn::ModelName::mlp || options.model.kernels == nn::Kernels::reference;
  if (!wide || plain) return;
  train::RunOptions changed = options;
  changed.train.stream = dtype_name(policy.compute);
  try_change(view, changed, fmt::format("--set train.stream={}", *changed.train.stream), device);
}

// Smaller choices that keep the model: halves of the batch and of the numbers.
void try_changes(MemoryView& view, const train::RunOptions& options, c10::Device device) {
  if (c10::elementSize(train::policy_of(options.train).compute) > 2) {
    train::RunOptions changed = options;
    changed.train.precision = "bf16";
    for (auto* dtype : {&changed.train.param, &changed.train.compute, &changed.train.stream,
                        &changed.train.reduce, &changed.train.master})
      dtype->reset();
    try_change(view, changed, "--set train.precision=bf16", device);
  }
  try_narrow_stream(view, options, device);
  if (view.batch < 2) return;
  train::RunOptions smaller = options;
  smaller.train.local_batch.reset();
  smaller.train.global_batch = view.batch / 2;
  smaller.train.micro_batch = std::min(view.micro_batch, view.batch / 2);
  try_change(view, smaller, fmt::format("--set train.global_batch={}", view.batch / 2), device);
  if (view.micro_batch < 2) return;
  train::RunOptions parts = options;
  parts.train.micro_batch = view.micro_batch / 2;
  try_change(
      view, parts,
      fmt::format("--set train.micro_batch={} (same result, accumulated)", view.micro_batch / 2),
      device);
}

nlohmann::json peak_json(const memory::Peak& peak) {
  nlohmann::json kinds = nlohmann::json::object(), largest = nlohmann::json::array();
  for (int kind = 0; kind < memory_kinds; ++kind) {
    std::string name(to_text(static_cast<MemoryKind>(kind)));
    std::replace(name.begin(), name.end(), ' ', '_');
    kinds[name] = peak.by_kind[kind];
  }
  for (size_t i = 0; i < std::min(tensors_shown, peak.alive.size()); ++i)
    largest.push_back({{"bytes", peak.alive[i].bytes},
                       {"kind", std::string(to_text(peak.alive[i].kind))},
                       {"module", peak.alive[i].module},
                       {"operator", peak.alive[i].op}});
  nlohmann::json modules = nlohmann::json::array();
  for (const auto& [module, bytes] : by_module(peak))
    modules.push_back({{"module", module}, {"bytes", bytes}});
  return {{"bytes", peak.bytes},         {"operator", peak.op},  {"module", peak.module},
          {"by_kind", std::move(kinds)}, {"by_module", modules}, {"largest", std::move(largest)}};
}

}  // namespace

MemoryView memory_view(const train::RunOptions& options, c10::Device device) {
  MemoryView view;
  view.device = device.is_cuda() ? "cuda" : "cpu";
  view.batch = train::global_batch_of(options.train, /*ranks=*/1);
  const int64_t micro = options.train.micro_batch.value_or(view.batch);
  view.micro_batch = micro == 0 ? view.batch : std::min(micro, view.batch);
  view.precision = options.train.precision;
  view.measured = train::measure(options, {.device = device});
  try_changes(view, options, device);
  return view;
}

void print_memory(const MemoryView& view) {
  const train::Measured& m = view.measured;
  const memory::Peak& peak = m.second_step.peak;
  fmt::print("memory on {}, dry run in {:.2f} s: batch {} in parts of {}, {}\n", view.device,
             m.seconds, view.batch, view.micro_batch, view.precision);
  for (const NamedPhase& row : phases(m))
    fmt::print("  {:<22} {:>12}\n", row.name, bytes_text(row.phase.peak.bytes));
  fmt::print("peak of a step: {} in {}{}\n", with_commas(peak.bytes) + " bytes", peak.op,
             peak.module.empty() ? "" : " of " + peak.module);
  for (int kind = 0; kind < memory_kinds; ++kind)
    if (peak.by_kind[kind] > 0)
      fmt::print("  {:<22} {:>12} {:>6.1f} %\n", to_text(static_cast<MemoryKind>(kind)),
                 bytes_text(peak.by_kind[kind]),
                 100.0 * static_cast<double>(peak.by_kind[kind]) / static_cast<double>(peak.bytes));
  fmt::print("by module\n");
  const auto modules = by_module(peak);
  for (size_t i = 0; i < std::min(modules_shown, modules.size()); ++i)
    fmt::print("  {:<44} {:>12}\n", modules[i].first, bytes_text(modules[i].second));
  fmt::print("largest at the peak\n");
  for (size_t i = 0; i < std::min(tensors_shown, peak.alive.size()); ++i)
    fmt::print("  {:>12}  {:<16} {} {}\n", bytes_text(peak.alive[i].bytes),
               to_text(peak.alive[i].kind), peak.alive[i].op, peak.alive[i].module);
  fmt::print("with\n");
  for (const Saving& saving : view.savings)
    fmt::print("  {:<56} {:>12} ({:+.1f} %)\n", saving.change, bytes_text(saving.peak),
               100.0 * (static_cast<double>(saving.peak) / static_cast<double>(peak.bytes) - 1));
}

nlohmann::json memory_json(const MemoryView& view) {
  nlohmann::json json = {{"device", view.device},
                         {"batch", view.batch},
                         {"micro_batch", view.micro_batch},
                         {"precision", view.precision},
                         {"flops_step", view.measured.log.flops()},
                         {"operators_step", view.measured.log.operators().size()}};
  for (const NamedPhase& row : phases(view.measured)) json[row.key] = peak_json(row.phase.peak);
  json["savings"] = nlohmann::json::array();
  for (const Saving& saving : view.savings)
    json["savings"].push_back({{"change", saving.change}, {"bytes", saving.peak}});
  return json;
}

}  // namespace braid::cli
