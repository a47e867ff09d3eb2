// SPDX-License-Identifier: BSD-3-Clause
// The profiles of all ranks in one: summary.json, and the tables that a terminal shows.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "braid/report/trace.h"

namespace braid::report {
namespace {

using nlohmann::json;

constexpr size_t most_operators = 40, most_modules = 200, shown_rows = 12;

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

// The slowest rank of each.
json merged_steps(const std::vector<json>& ranks) {
  json steps = ranks.front()["steps"];
  for (const json& rank : ranks)
    for (size_t i = 0; i < std::min(steps.size(), rank["steps"].size()); ++i)
      steps[i]["seconds"] =
          std::max(steps[i]["seconds"].get<double>(), rank["steps"][i]["seconds"].get<double>());
  return steps;
}

// Sums of the rows of one name over the ranks.
json summed(const std::vector<json>& ranks, const char* list) {
  std::map<std::string, json> rows;
  for (const json& rank : ranks)
    for (const json& row : rank[list]) {
      json& sum = rows.try_emplace(row["name"], json::object()).first->second;
      sum["name"] = row["name"];
      for (const auto& [key, value] : row.items())
        if (value.is_number()) sum[key] = sum.value(key, 0.0) + value.get<double>();
    }
  json all = json::array();
  for (auto& [name, row] : rows) all.push_back(std::move(row));
  return all;
}

template <class Weight>
void keep_largest(json& rows, size_t count, const Weight& weight) {
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const json& a, const json& b) { return weight(a) > weight(b); });
  if (rows.size() > count) rows.erase(rows.begin() + static_cast<ptrdiff_t>(count), rows.end());
}

json operators_of(const std::vector<json>& ranks) {
  json rows = summed(ranks, "operators");
  double all = 0;
  for (const json& row : rows) all += row["seconds"].get<double>();
  keep_largest(rows, most_operators, [](const json& row) { return row["seconds"].get<double>(); });
  for (json& row : rows) {
    const auto flops = row["flops"].get<double>(), bytes = row["bytes"].get<double>();
    const auto computing = row["computing"].get<double>();
    row["share"] = all > 0 ? row["seconds"].get<double>() / all : 0;
    row["tflops"] = computing > 0 ? flops / computing * 1e-12 : 0;
    row["intensity"] = bytes > 0 ? flops / bytes : 0;
    row.erase("computing");
  }
  return rows;
}

json regions_of(const std::vector<json>& ranks) {
  json rows = json::array();
  for (json row : ranks.front()["regions"]) {
    double seconds = 0, flops = 0;
    for (const json& rank : ranks)
      for (const json& other : rank["regions"])
        if (other["name"] == row["name"]) {
          seconds += other["seconds"].get<double>();
          flops += other["flops"].get<double>();
        }
    row["seconds"] = seconds / static_cast<double>(ranks.size());
    row["flops"] = flops;
    row["tflops"] = seconds > 0 ? flops / row["seconds"].get<double>() * 1e-12 : 0;
    rows.push_back(row);
  }
  return rows;
}

json step_times(const json& steps) {
  double sum = 0, least = 1e300, most = 0;
  for (const json& step : steps) {
    const auto seconds = step["seconds"].get<double>();
    sum += seconds;
    least = std::min(least, seconds);
    most = std::max(most, seconds);
  }
  return {{"mean", sum / static_cast<double>(steps.size())}, {"min", least}, {"max", most}};
}

json overhead_of(const InstrumentCost& cost) {
  if (cost.on.empty() || cost.off.empty()) return json::object();
  const double on = middle(cost.on), off = middle(cost.off);
  return {{"on", on},
          {"off", off},
          {"steps", cost.on.size()},
          {"ratio", on / off},
          {"ratio_of_best", *std::min_element(cost.on.begin(), cost.on.end()) /
                                *std::min_element(cost.off.begin(), cost.off.end())}};
}

std::string milliseconds(const json& row, const char* key) {
  return fmt::format("{:.2f}", row.value(key, 0.0) * 1e3);
}

void print_ranks(std::string& text, const json& summary) {
  text +=
      "\nms a step         time  forward backward optimizer     data  comm.  exposed   bubble "
      "host gap    other\n";
  for (const json& row : summary["ranks"])
    text += fmt::format(
        "rank {:<9} {:>8} {:>8} {:>8} {:>9} {:>8} {:>6} {:>8} {:>8} {:>8} {:>8}\n",
        row["rank"].get<int>(), milliseconds(row, "seconds"), milliseconds(row, "forward"),
        milliseconds(row, "backward"), milliseconds(row, "optimizer"), milliseconds(row, "data"),
        milliseconds(row, "communication"), milliseconds(row, "exposed_communication"),
        milliseconds(row, "bubble"), milliseconds(row, "host_gap"), milliseconds(row, "other"));
}

void print_operators(std::string& text, const json& summary) {
  text +=
      "\noperator                                      calls   ms a step   share   GFLOP  "
      "TFLOP/s  FLOP/byte\n";
  size_t shown = 0;
  for (const json& row : summary["operators"]) {
    if (shown++ == shown_rows) break;
    const auto flops = row["flops"].get<double>();
    text += fmt::format("{:<44.44} {:>6.0f} {:>11} {:>6.1f}%", row["name"].get<std::string>(),
                        row["calls"].get<double>(), milliseconds(row, "seconds"),
                        100 * row["share"].get<double>());
    if (flops > 0)
      text += fmt::format(" {:>7.3f} {:>8.3f} {:>10.1f}", flops * 1e-9, row["tflops"].get<double>(),
                          row["intensity"].get<double>());
    text += "\n";
  }
}

void print_modules(std::string& text, const json& summary) {
  text += "\nmodule                                   forward ms  backward ms\n";
  size_t shown = 0;
  for (const json& row : summary["modules"]) {
    if (shown++ == shown_rows) break;
    text += fmt::format("{:<40.40} {:>10} {:>12}\n", row["name"].get<std::string>(),
                        milliseconds(row, "forward"), milliseconds(row, "backward"));
  }
}

void print_regions(std::string& text, const json& summary) {
  text += "\nregion       ms a step    GFLOP  TFLOP/s\n";
  for (const json& row : summary["regions"])
    text += fmt::format("{:<10} {:>11} {:>8.3f} {:>8.3f}\n", row["name"].get<std::string>(),
                        milliseconds(row, "seconds"), row["flops"].get<double>() * 1e-9,
                        row["tflops"].get<double>());
}

}  // namespace

std::string profile_summary(const std::vector<std::string>& texts, const InstrumentCost& cost) {
  std::vector<json> ranks;
  for (const std::string& text : texts) ranks.push_back(json::parse(text));
  json rows = json::array();
  for (const json& rank : ranks) rows.push_back(rank["row"]);
  json modules = summed(ranks, "modules");
  keep_largest(modules, most_modules, [](const json& row) {
    return row["forward"].get<double>() + row["backward"].get<double>();
  });
  const json steps = merged_steps(ranks);
  return json{{"steps", steps},
              {"step", step_times(steps)},
              {"device", ranks.front()["device"]},
              {"ranks", rows},
              {"regions", regions_of(ranks)},
              {"operators", operators_of(ranks)},
              {"modules", modules},
              {"overhead", overhead_of(cost)}}
             .dump(1) +
         "\n";
}

std::string profile_text(const std::string& text) {
  const json summary = json::parse(text);
  const json& step = summary["step"];
  std::string out =
      fmt::format("{} steps, {} to {}: mean {} ms, min {}, max {}\n", summary["steps"].size(),
                  summary["steps"].front()["name"].get<std::string>(),
                  summary["steps"].back()["name"].get<std::string>(), milliseconds(step, "mean"),
                  milliseconds(step, "min"), milliseconds(step, "max"));
  print_ranks(out, summary);
  print_regions(out, summary);
  print_operators(out, summary);
  print_modules(out, summary);
  const json& cost = summary["overhead"];
  if (!cost.empty())
    out += fmt::format(
        "\ninstruments (ledger and regions, without trace): {} ms a step, {} ms without: {:+.1f} % "
        "(medians of {} each; of the best {:+.1f} %)\n",
        milliseconds(cost, "on"), milliseconds(cost, "off"),
        100 * (cost["ratio"].get<double>() - 1), cost["steps"].get<int>(),
        100 * (cost["ratio_of_best"].get<double>() - 1));
  return out;
}

}  // namespace braid::report
