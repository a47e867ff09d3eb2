// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "braid/core/error.h"
#include "checkpoint/tensor_file.h"

namespace braid::checkpoint {
namespace {

using nlohmann::json;

InternalError torn_state(const std::string& what, const std::string& why) {
  return InternalError({.what = what,
                        .why = why,
                        .fix = "report it with the config: the layout of the ranks is wrong"});
}

void check_alike(const std::vector<std::vector<Holding>>& ranks) {
  std::map<std::string, std::pair<const Holding*, size_t>> seen;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const Holding& held : ranks[rank]) {
      const auto [at, fresh] = seen.try_emplace(held.name, &held, rank);
      const Holding& other = *at->second.first;
      if (!fresh && (other.dtype != held.dtype || other.whole != held.whole))
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

// Holdings come ordered by name, dtype, shape and first element.
void check_cover(const std::map<Holding, Holders>& holders) {
  const std::string* name = nullptr;
  int64_t reached = 0, all = 0;
  const auto finish = [&] {
    if (name != nullptr && reached < all)
      throw torn_state(
          fmt::format("no rank holds the elements {} to {} of {}", reached, all - 1, *name),
          "together the ranks hold the whole of every tensor");
  };
  for (const auto& [held, ranks] : holders) {
    if (name == nullptr || *name != held.name) {
      finish();
      name = &held.name;
      reached = 0;
      all = elements_of(held.whole);
    }
    if (held.first > reached)
      throw torn_state(
          fmt::format("no rank holds the elements {} to {} of {}", reached, held.first - 1, *name),
          "together the ranks hold the whole of every tensor");
    reached = std::max(reached, held.first + held.count);
  }
  finish();
}

int64_t bytes_held(const Holding& held) {
  return held.count * static_cast<int64_t>(c10::elementSize(held.dtype));
}

// Elements of a holding at byte `at` of its line that start before byte `cut` of the line.
int64_t elements_before(const Holding& held, int64_t at, int64_t cut) {
  const auto size = static_cast<int64_t>(c10::elementSize(held.dtype));
  return std::clamp<int64_t>((cut - at + size - 1) / size, 0, held.count);
}

}  // namespace

std::vector<Holding> holdings_of(const State& state) {
  std::vector<Holding> holdings;
  for (const auto& [name, tensor] : state.tensors) {
    const auto piece = state.pieces.find(name);
    const bool is_whole = piece == state.pieces.end() || piece->second.whole.empty();
    holdings.push_back({name, tensor.scalar_type(),
                        is_whole ? tensor.sizes().vec() : piece->second.whole,
                        is_whole ? 0 : piece->second.first, tensor.numel()});
  }
  return holdings;
}

std::string to_text(const std::vector<Holding>& holdings) {
  json rows = json::array();
  for (const Holding& held : holdings)
    rows.push_back({held.name, static_cast<int>(held.dtype), held.whole, held.first, held.count});
  return rows.dump();
}

std::vector<Holding> holdings_from(const std::string& text) {
  std::vector<Holding> holdings;
  for (const json& row : json::parse(text))
    holdings.push_back({row.at(0).get<std::string>(),
                        static_cast<c10::ScalarType>(row.at(1).get<int>()),
                        row.at(2).get<std::vector<int64_t>>(), row.at(3).get<int64_t>(),
                        row.at(4).get<int64_t>()});
  return holdings;
}

std::vector<WrittenRun> runs_of(const std::vector<std::vector<Holding>>& ranks, int rank) {
  check_alike(ranks);
  const std::map<Holding, Holders> holders = holders_of(ranks);
  check_cover(holders);
  std::map<Holders, int64_t> lengths, reached;  // of each line
  for (const auto& [held, who] : holders) lengths[who] += bytes_held(held);
  std::vector<WrittenRun> runs;
  for (const auto& [held, who] : holders) {
    int64_t& at = reached[who];
    const auto mine = std::find(who.begin(), who.end(), rank);
    if (mine != who.end()) {
      const auto place = mine - who.begin(), places = static_cast<std::ptrdiff_t>(who.size());
      const int64_t first = elements_before(held, at, lengths[who] / places * place);
      const int64_t last = place + 1 == places
                               ? held.count
                               : elements_before(held, at, lengths[who] / places * (place + 1));
      const bool empty_tensor = elements_of(held.whole) == 0 && place == 0;
      if (last > first || empty_tensor) runs.push_back({held.name, first, last - first});
    }
    at += bytes_held(held);
  }
  return runs;
}

}  // namespace braid::checkpoint
