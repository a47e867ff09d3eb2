// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "braid/core/error.h"
#include "checkpoint/runs.h"
#include "checkpoint/tensor_file.h"

namespace braid::checkpoint {
namespace {

using nlohmann::json;

InternalError torn_state(const std::string& what, const std::string& why) {
  return InternalError({.what = what,
                        .why = why,
                        .fix = "report it with the config: the layout of the ranks is wrong"});
}

// A counter is a single number here and a piece of one element there.
bool same_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const auto single = [](const std::vector<int64_t>& shape) {
    return std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size == 1; });
  };
  return a == b || (single(a) && single(b));
}

void check_alike(const std::vector<std::vector<Holding>>& ranks) {
  std::map<std::string, std::pair<const Holding*, size_t>> seen;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const Holding& held : ranks[rank]) {
      const auto [at, fresh] = seen.try_emplace(held.name, &held, rank);
      const Holding& other = *at->second.first;
      if (!fresh && (other.dtype != held.dtype || !same_shape(other.whole, held.whole)))
        throw torn_state(
            fmt::format("tensor {} is {} [{}] on rank {} and {} [{}] on rank {}", held.name,
                        c10::toString(other.dtype), fmt::join(other.whole, ", "), at->second.second,
                        c10::toString(held.dtype), fmt::join(held.whole, ", "), rank),
            "all ranks hold pieces of one model");
    }
}

using Holders = std::vector<int>;

// Every distinct holding with the ranks that have it.
std::map<Holding, Holders> holders_of(const std::vector<std::vector<Holding>>& ranks) {
  std::map<Holding, Holders> holders;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const Holding& held : ranks[rank]) holders[held].push_back(static_cast<int>(rank));
  return holders;
}

InternalError nobody_holds(const std::string& name, int64_t begin, int64_t end) {
  return torn_state(fmt::format("no rank holds the elements {} to {} of {}", begin, end - 1, name),
                    "together the ranks hold the whole of every tensor");
}

// Runs of the elements of a holding that its holders write.
struct HeldRun {
  int64_t first = 0, count = 0;
};
using HeldRuns = std::vector<HeldRun>;
constexpr size_t most_runs = 16;  // more would be a long manifest: elements are written twice then

// The ordinary case, without a look at runs: boxes that do not overlap and fill the whole, each
// held from end to end.
bool boxes_fill(const std::vector<const Holding*>& holdings) {
  std::map<std::vector<Cut>, std::vector<const Holding*>> boxes;
  for (const Holding* held : holdings) boxes[held->cuts].push_back(held);  // by first element
  int64_t elements = 0;
  for (auto box = boxes.begin(); box != boxes.end(); ++box) {
    for (auto other = boxes.begin(); other != box; ++other)
      if (!boxes_disjoint(other->first, box->first)) return false;
    int64_t reached = 0;
    for (const Holding* held : box->second) {
      if (held->first > reached) return false;
      reached = std::max(reached, held->first + held->count);
    }
    const int64_t size = elements_of(box_of({box->second.front()->whole, box->first, 0}));
    if (reached < size) return false;
    elements += size;
  }
  return elements == elements_of(holdings.front()->whole);
}

// By place in the holding, neighbours joined.
HeldRuns held_runs(std::vector<CommonRun> common) {
  std::sort(common.begin(), common.end(),
            [](const CommonRun& a, const CommonRun& b) { return a.in_piece < b.in_piece; });
  HeldRuns runs;
  for (const CommonRun& run : common) {
    if (!runs.empty() && runs.back().first + runs.back().count == run.in_piece)
      runs.back().count += run.count;
    else
      runs.push_back({run.in_piece, run.count});
  }
  return runs;
}

// What each holding of one tensor adds to those before it.
void deal_tensor(const std::vector<const Holding*>& holdings,
                 std::map<const Holding*, HeldRuns>& dealt) {
  for (const Holding* held : holdings) dealt[held] = {{0, held->count}};
  if (boxes_fill(holdings)) return;
  const int64_t all = elements_of(holdings.front()->whole);
  std::vector<Run> missing;
  if (all > 0) missing.push_back({0, 0, all});
  for (const Holding* held : holdings) {
    HeldRuns fresh = held_runs(
        take_common(missing, ascending_runs({held->whole, held->cuts, held->first}, held->count)));
    if (fresh.size() <= most_runs) dealt[held] = std::move(fresh);
  }
  if (!missing.empty())
    throw nobody_holds(holdings.front()->name, missing.front().from,
                       missing.front().from + missing.front().count);
}

// Holdings come ordered by name, dtype, shape and first element.
std::map<const Holding*, HeldRuns> dealt_of(const std::map<Holding, Holders>& holders) {
  std::map<const Holding*, HeldRuns> dealt;
  std::vector<const Holding*> same;
  for (const auto& [held, ranks] : holders) {
    if (!same.empty() && same.back()->name != held.name) {
      deal_tensor(same, dealt);
      same.clear();
    }
    same.push_back(&held);
  }
  if (!same.empty()) deal_tensor(same, dealt);
  return dealt;
}

int64_t bytes_of_run(const Holding& held, const HeldRun& run) {
  return run.count * static_cast<int64_t>(c10::elementSize(held.dtype));
}

// Elements of a run at byte `at` of its line that start before byte `cut` of the line.
int64_t elements_before(const Holding& held, const HeldRun& run, int64_t at, int64_t cut) {
  const auto size = static_cast<int64_t>(c10::elementSize(held.dtype));
  return std::clamp<int64_t>((cut - at + size - 1) / size, 0, run.count);
}

// Where a rank stands among those that write a line together.
struct LinePlace {
  int64_t place = 0, places = 1, length = 0;
  int64_t begin() const { return length / places * place; }
  bool last() const { return place + 1 == places; }
};

void add_share(const Holding& held, const HeldRun& run, int64_t at, const LinePlace& mine,
               std::vector<WrittenRun>& runs) {
  const int64_t begin = elements_before(held, run, at, mine.begin());
  const int64_t end =
      mine.last() ? run.count
                  : elements_before(held, run, at, mine.length / mine.places * (mine.place + 1));
  const bool empty_tensor = elements_of(held.whole) == 0 && mine.place == 0;
  if (end > begin || empty_tensor) runs.push_back({held.name, run.first + begin, end - begin});
}

// [[dimension, begin, end, begin, end, ...], ...]
json cuts_text(const std::vector<Cut>& cuts) {
  json rows = json::array();
  for (const Cut& cut : cuts) {
    json row = json::array({cut.dim});
    for (const Range& range : cut.ranges) {
      row.push_back(range.begin);
      row.push_back(range.end);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Cut> cuts_in(const json& rows) {
  std::vector<Cut> cuts;
  for (const json& row : rows) {
    Cut& cut = cuts.emplace_back();
    cut.dim = row.at(0).get<int64_t>();
    for (size_t i = 1; i + 1 < row.size(); i += 2)
      cut.ranges.push_back({row.at(i).get<int64_t>(), row.at(i + 1).get<int64_t>()});
  }
  return cuts;
}

}  // namespace

std::vector<Holding> holdings_of(const State& state) {
  std::vector<Holding> holdings;
  for (const auto& [name, tensor] : state.tensors) {
    const auto piece = state.pieces.find(name);
    const bool is_whole = piece == state.pieces.end() || piece->second.whole.empty();
    Holding held{name, tensor.scalar_type(), tensor.sizes().vec(), 0, tensor.numel()};
    if (!is_whole) {
      held.whole = piece->second.whole;
      held.first = piece->second.first;
      held.cuts = plain_cuts(piece->second.cuts, held.whole);
    }
    holdings.push_back(std::move(held));
  }
  return holdings;
}

std::string to_text(const std::vector<Holding>& holdings) {
  json rows = json::array();
  for (const Holding& held : holdings) {
    rows.push_back({held.name, static_cast<int>(held.dtype), held.whole, held.first, held.count});
    if (!held.cuts.empty()) rows.back().push_back(cuts_text(held.cuts));
  }
  return rows.dump();
}

std::vector<Holding> holdings_from(const std::string& text) {
  std::vector<Holding> holdings;
  for (const json& row : json::parse(text))
    holdings.push_back(
        {row.at(0).get<std::string>(), static_cast<c10::ScalarType>(row.at(1).get<int>()),
         row.at(2).get<std::vector<int64_t>>(), row.at(3).get<int64_t>(), row.at(4).get<int64_t>(),
         row.size() > 5 ? cuts_in(row.at(5)) : std::vector<Cut>()});
  return holdings;
}

std::vector<WrittenRun> runs_of(const std::vector<std::vector<Holding>>& ranks, int rank) {
  check_alike(ranks);
  const std::map<Holding, Holders> holders = holders_of(ranks);
  const std::map<const Holding*, HeldRuns> dealt = dealt_of(holders);
  std::map<Holders, int64_t> lengths, reached;  // of each line
  for (const auto& [held, who] : holders)
    for (const HeldRun& run : dealt.at(&held)) lengths[who] += bytes_of_run(held, run);
  std::vector<WrittenRun> runs;
  for (const auto& [held, who] : holders) {
    int64_t& at = reached[who];
    const auto mine = std::find(who.begin(), who.end(), rank);
    const LinePlace place{mine - who.begin(), static_cast<int64_t>(who.size()), lengths[who]};
    for (const HeldRun& run : dealt.at(&held)) {
      if (mine != who.end()) add_share(held, run, at, place, runs);
      at += bytes_of_run(held, run);
    }
  }
  return runs;
}

}  // namespace braid::checkpoint
