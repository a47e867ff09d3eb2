// SPDX-License-Identifier: BSD-3-Clause
// rank<R>_memory.html: what the page of src/report/page/memory.html is given.
#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "report/memory_points.h"
#include "report/page.h"
#include "report/page_text.h"

namespace braid::report {
namespace {

using PageWhat = MemoryChange::What;

constexpr size_t parts_drawn = 1500;  // a screen has about as many columns
constexpr size_t modules_shown = 14;
constexpr size_t tensors_shown = 40;

struct AliveBlock {
  const MemoryChange* taken = nullptr;
  uint8_t category = 7;
};

class AliveBlocks {
 public:
  void apply(const MemoryChange& change) {
    if (change.what == PageWhat::freed) {
      bytes_ -= change.bytes;
      blocks_.erase(change.block);
    } else if (change.what == PageWhat::changed) {
      blocks_.at(change.block).category = change.category;
    } else {
      bytes_ += change.bytes;
      blocks_[change.block] = {&change, change.category};
    }
  }
  int64_t bytes() const { return bytes_; }
  std::vector<AliveBlock> list() const {  // largest first
    std::vector<AliveBlock> all;
    for (const auto& [number, block] : blocks_) all.push_back(block);
    std::sort(all.begin(), all.end(), [](const AliveBlock& a, const AliveBlock& b) {
      return std::tie(b.taken->bytes, a.taken->block) < std::tie(a.taken->bytes, b.taken->block);
    });
    return all;
  }

 private:
  std::unordered_map<uint64_t, AliveBlock> blocks_;
  int64_t bytes_ = 0;
};

// How many changes lead to the highest moment, for the first time.
size_t changes_until_peak(const MemoryHistory& history) {
  AliveBlocks alive;
  int64_t most = 0;
  size_t until = 0;
  for (size_t i = 0; i < history.changes.size(); ++i) {
    alive.apply(history.changes[i]);
    if (alive.bytes() <= most) continue;
    most = alive.bytes();
    until = i + 1;
  }
  return until;
}

double milliseconds_of(const MemoryChange& change) {
  return static_cast<double>(change.nanoseconds) * 1e-6;
}

// Blocks that differ in nothing that is shown are one row.
PageJson rows_json(const MemoryHistory& history, const std::vector<AliveBlock>& alive,
                   size_t& listed) {
  PageJson rows = PageJson::array();
  std::map<std::tuple<int64_t, int, uint32_t, uint32_t>, size_t> row_of;
  listed = 0;
  for (const auto& [taken, category] : alive) {
    const auto key = std::tuple(taken->bytes, int{category}, taken->module, taken->op);
    const auto [found, is_new] = row_of.try_emplace(key, rows.size());
    if (is_new && rows.size() == tensors_shown) break;
    ++listed;
    if (!is_new) {
      rows[found->second]["count"] = rows[found->second]["count"].get<int64_t>() + 1;
      continue;
    }
    rows.push_back({{"bytes", taken->bytes},
                    {"category", category},
                    {"module", history.names[taken->module]},
                    {"op", history.names[taken->op]},
                    {"ms", rounded(milliseconds_of(*taken))},
                    {"before", taken->what == PageWhat::before},
                    {"count", 1}});
  }
  return rows;
}

void add_modules(PageJson& json, const MemoryHistory& history,
                 const std::vector<AliveBlock>& alive) {
  std::map<uint32_t, CategoryBytes> by_module;
  for (const auto& [taken, category] : alive) by_module[taken->module][category] += taken->bytes;
  std::vector<std::pair<uint32_t, CategoryBytes>> modules(by_module.begin(), by_module.end());
  std::ranges::stable_sort(modules, [](const auto& a, const auto& b) {
    return total_of(a.second) > total_of(b.second);
  });
  PageJson rows = PageJson::array();
  int64_t rest = 0;
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto& [module, by] = modules[i];
    if (i < modules_shown)
      rows.push_back({{"name", history.names[module]}, {"bytes", total_of(by)}, {"by", by}});
    else
      rest += total_of(by);
  }
  json["modules"] = std::move(rows);
  json["more_modules"] = modules.size() - std::min(modules.size(), modules_shown);
  json["more_bytes"] = rest;
}

PageJson peak_json(const MemoryHistory& history) {
  AliveBlocks blocks;
  const size_t until = changes_until_peak(history);
  for (size_t i = 0; i < until; ++i) blocks.apply(history.changes[i]);
  const std::vector<AliveBlock> alive = blocks.list();
  CategoryBytes by = {}, counts = {};
  for (const auto& [taken, category] : alive) {
    by[category] += taken->bytes;
    ++counts[category];
  }
  const MemoryChange last = until > 0 ? history.changes[until - 1] : MemoryChange{};
  const bool named = until > 0 && last.what != PageWhat::before;
  PageJson json = {{"bytes", blocks.bytes()},
                   {"ms", rounded(milliseconds_of(last))},
                   {"module", named ? history.names[last.module] : ""},
                   {"op", named ? history.names[last.op] : ""},
                   {"categories", by},
                   {"counts", counts}};
  add_modules(json, history, alive);
  size_t listed = 0;
  json["blocks"] = rows_json(history, alive, listed);
  json["blocks_listed"] = listed;
  json["blocks_in_all"] = alive.size();
  return json;
}

PageJson page_data(const MemoryHistory& history) {
  const std::vector<MemoryPoint> points = memory_points(history);
  const auto taken = std::ranges::count_if(
      history.changes, [](const MemoryChange& change) { return change.what == PageWhat::taken; });
  return {{"rank", history.rank},
          {"device", history.device},
          {"during", history.during},
          {"reserved", history.reserved},
          {"limit", history.limit},
          {"did_not_fit", history.did_not_fit},
          {"alive", total_of(points.back().bytes)},
          {"taken", taken},
          {"milliseconds", rounded(static_cast<double>(points.back().nanoseconds) * 1e-6)},
          {"points", points_json(thinned(points, parts_drawn))},
          {"peak", peak_json(history)}};
}

}  // namespace

std::string memory_page(const MemoryHistory& history) {
  const std::string title =
      fmt::format("braid: memory of rank {}, {}", history.rank, history.device);
  return filled(page_memory_html, {{"title", html_escaped(title)},
                                   {"style", std::string(page_css)},
                                   {"shared_script", std::string(page_shared_js)},
                                   {"timeline_script", std::string(page_timeline_js)},
                                   {"script", std::string(page_memory_js)},
                                   {"data", script_escaped(page_data(history))}});
}

}  // namespace braid::report
