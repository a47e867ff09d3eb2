// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/error.h"

#include <algorithm>
#include <numeric>

#include "braid/core/printable.h"

namespace braid {
namespace {

// Edits between two words, where swapping two neighbours counts as one: the commonest slip of the
// fingers.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string explain(const Complaint& complaint) {
  std::string text = "braid: ";
  if (!complaint.where.empty()) text += complaint.where + ": ";
  text += complaint.what;
  if (!complaint.why.empty()) text += "\n  why: " + complaint.why;
  if (!complaint.fix.empty()) text += "\n  fix: " + complaint.fix;
  return printable(text);
}

Error::Error(Complaint complaint, Exit code)
    : std::runtime_error(explain(complaint)), complaint_(std::move(complaint)), code_(code) {}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance =
      std::max<size_t>(2, word.size() / 3) + 1;  // farther is another word, not a slip
  constexpr size_t longest_typed = 256;
  if (word.size() > longest_typed) return best;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(word.size(), candidate.size());
    if (longer - std::min(word.size(), candidate.size()) >= best_distance) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace braid
