// SPDX-License-Identifier: BSD-3-Clause
// SwinIR on crops and on whole slices, as the NREL tutorial trains it: the peak that a dry step
// predicts, the one that is measured where a GPU is, and the one that the tutorial published.
//
//   build/bin/bench_nrel [row]      one JSON object a row on stdout, a table on stderr; run it in
//                                   the root of the repository, where configs/ is
//
// Without a GPU: predicted peaks alone. With one, each row runs in a process of its own, so that
// no row finds memory that another one reserved.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "braid/core/accelerator.h"
#include "braid/core/error.h"
#include "braid/train/measure.h"

namespace {

using namespace braid;
using nlohmann::json;

const c10::Device gpu(c10::kCUDA, 0);
constexpr double gib = 1 << 30;
constexpr double h100 = 79.1;  // GiB that an H100 of "80 GB" shows to a program

struct Row {
  const char* name;
  const char* spec;
  std::vector<std::string> sets;
  double published;  // GiB allocated at the peak; 0: did not fit on an H100 of 80 GB
  int64_t ranks = 1;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"crops fp32", "crops", {}, 23.39},
      {"full fp32", "full", {}, 0},
      {"full fp16", "full_amp", {}, 67.04},
      {"full fp16 recompute", "full_amp", {"memory.recompute=blocks"}, 11.04},
      {"full fp32 recompute", "full", {"memory.recompute=blocks"}, 11.92},
      // What the published 11.92 is of: parameters spread over four ranks.
      {"full fp32 recompute zero3", "zero3", {"memory.recompute=blocks"}, 11.92, 4}};
  return all;
}

json largest_of(const memory::Peak& peak) {
  std::map<std::string, int64_t> of;
  for (const memory::Held& held : peak.alive)
    of[fmt::format("{} {}", to_text(held.kind), held.op)] += held.bytes;
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [name, bytes] : of) order.emplace_back(bytes, name);
  std::sort(order.rbegin(), order.rend());
  order.resize(std::min<size_t>(order.size(), 8));
  json list = json::array();
  for (const auto& [bytes, name] : order)
    list.push_back({{"of", name}, {"gib", static_cast<double>(bytes) / gib}});
  return list;
}

json predicted(const train::RunOptions& run, const Row& row) {
  const train::Measured dry = train::measure(run, {.device = gpu, .world = row.ranks});
  const memory::Peak& peak = dry.second_step.peak;
  json by_kind;
  for (int kind = 0; kind < memory_kinds; ++kind)
    if (peak.by_kind[kind] > 0)
      by_kind[std::string(to_text(static_cast<MemoryKind>(kind)))] =
          static_cast<double>(peak.by_kind[kind]) / gib;
  const double bytes = static_cast<double>(std::max(peak.bytes, dry.first_step.peak.bytes)) / gib;
  return {{"predicted", bytes},        {"predicted_at", peak.op + " " + peak.module},
          {"by_kind", by_kind},        {"largest", largest_of(peak)},
          {"fits_80gb", bytes < h100}, {"dry_seconds", dry.seconds}};
}

json measured(const train::RunOptions& run) {
  constexpr int warm_up = 2, steps = 5;
  try {
    std::vector<double> seconds = train::time_steps(run, gpu, warm_up + steps);
    std::sort(seconds.begin() + warm_up, seconds.end());
    return {{"allocated", static_cast<double>(accelerator()->peak_allocated(0)) / gib},
            {"reserved", static_cast<double>(accelerator()->peak_reserved(0)) / gib},
            {"seconds", seconds[warm_up + steps / 2]}};
  } catch (const c10::Error& error) {  // a smaller GPU than the row needs
    return {{"error", error.what_without_backtrace()}};
  }
}

json result_of(const Row& row) {
  const train::RunOptions run =
      train::load_run(std::string("configs/swinir.yaml:") + row.spec, row.sets);
  json result = {{"row", row.name}, {"published", row.published}, {"ranks", row.ranks}};
  result.update(predicted(run, row));
  if (accelerator() != nullptr && row.ranks == 1) result.update(measured(run));
  return result;
}

// This program again, with one row alone.
json result_of_child(const std::string& program, const Row& row) {
  const std::string command = fmt::format("'{}' '={}'", program, row.name);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             &::pclose);
  std::string text;
  std::array<char, 4096> part;
  while (pipe != nullptr && std::fgets(part.data(), part.size(), pipe.get()) != nullptr)
    text += part.data();
  return text.empty() ? json{{"row", row.name}, {"error", "the process of the row ended"}}
                      : json::parse(text);
}

std::string cell(const json& result, const char* key) {
  return result.contains(key) ? fmt::format("{:.2f}", result[key].get<double>()) : "-";
}

void print_line(const json& result) {
  const double published = result.value("published", 0.0);
  fmt::print(stderr, "{:<26} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {}\n",
             result["row"].get<std::string>(),
             published > 0 ? fmt::format("{:.2f}", published) : "OOM 80GB",
             cell(result, "predicted"), cell(result, "allocated"), cell(result, "reserved"),
             result.value("fits_80gb", false) ? "fits" : "OOM", cell(result, "seconds"),
             result.value("error", ""));
}

int run_rows(const std::string& program, const std::string& wanted) {
  const bool one = wanted.starts_with("=");  // by its whole name, in this process
  const bool children = accelerator() != nullptr && !one;
  if (!one)
    fmt::print(stderr, "{:<26} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8}\n", "GiB", "published",
               "predicted", "allocated", "reserved", "in 80 GB", "s/step");
  for (const Row& row : rows()) {
    const std::string name = row.name;
    if (one ? wanted.substr(1) != name : name.find(wanted) == std::string::npos) continue;
    const json result = children ? result_of_child(program, row) : result_of(row);
    fmt::print("{}\n", result.dump());
    std::fflush(stdout);
    if (!one) print_line(result);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run_rows(arguments[0], count > 1 ? arguments[1] : "");
  } catch (const Error& error) {
    fmt::print(stderr, "bench_nrel: {}\n", error.what());
    return 1;
  }
}
