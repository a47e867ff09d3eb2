// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "braid/plan/published.h"

namespace braid::plan {
namespace {

std::string count_words(int64_t count, const std::string& printed) {
  if (printed.find('.') != std::string::npos)
    return fmt::format("{:.1f}", static_cast<double>(count) * 1e-9);
  std::string digits = fmt::format("{}", count);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string count_lines() {
  std::string text = "Parameters (with a point: billions)\n";
  for (const PublishedCount& row : published_counts()) {
    const std::string counted = count_words(count_parameters(row.options), row.printed);
    text += fmt::format("  {:<48} {:>16} {:>16}  {}\n", row.run, row.printed, counted,
                        counted == row.printed ? "equal" : "MISS");
  }
  return text;
}

std::string state_lines() {
  std::string text =
      "\nB4: GB of parameters, gradients and states a rank, on 1, 4, ..., 1024 ranks\n";
  std::map<std::pair<int64_t, int64_t>, double> bytes;
  int equal = 0, all = 0;
  for (const PublishedStates& row : published_states()) {
    const auto [place, fresh] = bytes.try_emplace({row.zero, row.ranks}, 0.0);
    if (fresh) place->second = state_bytes(row.zero, row.ranks);
    const double gb = place->second * row.parameters * 1e-9;
    const bool same = reads(gb, row.printed);
    if (row.ranks == 1)
      text += fmt::format("\n  {:>6g} B, ZeRO-{}:", row.parameters * 1e-9, row.zero);
    text += fmt::format(" {} ({:.6g}{})", row.printed, gb, same ? "" : " MISS");
    equal += same ? 1 : 0;
    ++all;
  }
  return text + fmt::format("\n  {} of {} read as printed\n", equal, all);
}

std::string largest_part(const TimeParts& p) {
  const std::array<std::pair<const char*, double>, 5> parts = {
      {{"kernels", p.forward + p.backward + p.recompute + p.optimizer},
       {"communication", p.communication},
       {"bubble", p.bubble},
       {"launches", p.launch},
       {"copies", p.copies}}};
  double all = 0;
  std::string words;
  for (const auto& [name, seconds] : parts) all += seconds;
  for (const auto& [name, seconds] : parts)
    if (seconds > 0.01 * all)
      words += fmt::format("{}{} {:.0f} %", words.empty() ? "" : ", ", name, 100 * seconds / all);
  return words;
}

bool is_long(const PublishedTime& row) {
  return row.options.mesh.pipeline > 2 || row.options.mesh.tensor > 4;
}

struct MeanError {
  double sum = 0, worst = 0;
  int rows = 0;
  void add(double error) {
    sum += std::abs(error);
    worst = std::max(worst, std::abs(error));
    ++rows;
  }
  std::string text(const char* of) const {
    return fmt::format("{}: mean {:.1f} %, worst {:.1f} %, {} rows\n", of,
                       rows > 0 ? 100 * sum / rows : 0, 100 * worst, rows);
  }
};

}  // namespace

std::string published_line(const PublishedTime& row, const PredictedTime& predicted) {
  const std::string mark = row.fitted ? "fitted on" : row.counts ? "" : "no bar";
  return fmt::format(
      "{:<6} {:<44} {:<15} {:<14} {:>10.5g} {:>10.5g} {:>+7.1f} %  {:<9}  {}{}{}{}\n", row.table,
      row.run, row.cluster, unit_of(row.figure), row.published, predicted.value,
      100 * predicted.error(row), mark, predicted.launch_bound ? "launch-bound: " : "",
      largest_part(predicted.parts), row.note.empty() ? "" : "; ", row.note);
}

std::string published_table(const TableOptions& how) {
  std::string text = count_lines() + state_lines();
  text += fmt::format("\n{:<6} {:<44} {:<15} {:<14} {:>10} {:>10} {:>9}\n", "table", "run",
                      "cluster", "unit", "published", "predicted", "error");
  MeanError all, unseen;
  for (const PublishedTime& row : published_times()) {
    if (is_long(row) && !how.long_rows) continue;
    const PredictedTime predicted = predict(row);
    text += published_line(row, predicted);
    if (row.counts) all.add(predicted.error(row));
    if (row.counts && !row.fitted) unseen.add(predicted.error(row));
  }
  return text + all.text("rows with a bar") + unseen.text("of these, not fitted on");
}

}  // namespace braid::plan
