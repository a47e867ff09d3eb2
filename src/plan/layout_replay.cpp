// SPDX-License-Identifier: BSD-3-Clause
#include "plan/layout_replay.h"

#include <set>
#include <string>

#include "braid/core/deadline.h"

namespace braid::plan {
namespace {

using HistoryWhat = memory::HistoryEvent::What;

// Operators that ask for a handle of cuBLAS.
bool is_product(const std::string& op) {
  static const std::set<std::string> products = {"aten::mm",          "aten::addmm",
                                                 "aten::bmm",         "aten::baddbmm",
                                                 "aten::addmv",       "aten::_addmm_activation",
                                                 "braid::linear_gelu"};
  return products.contains(op);
}

// With a bias these go through cuBLASLt, which has a workspace of its own.
bool is_product_with_bias(const std::string& op) {
  return op == "aten::addmm" || op == "aten::_addmm_activation" || op == "braid::linear_gelu";
}

constexpr int64_t lt_workspace = 1 << 20;  // of torch 2.11 on every GPU, measured on an H200

}  // namespace

// A history numbers its blocks from the beginning, and what was there before comes first, in the
// order in which it was taken: so those of the last part are found again.
void LifeReplay::begin_part(const memory::History& part) {
  number_.clear();
  std::unordered_map<int64_t, std::vector<uint64_t>> by_bytes;
  for (auto held = alive_.rbegin(); held != alive_.rend(); ++held)
    if (place_.contains(held->first)) by_bytes[held->second].push_back(held->first);
  std::vector<std::pair<uint64_t, int64_t>> kept;
  std::unordered_map<uint64_t, size_t> place;
  for (const memory::HistoryEvent& event : part.events) {
    if (event.what != HistoryWhat::before) continue;
    std::vector<uint64_t>& same = by_bytes[event.bytes];
    uint64_t number = next_;
    if (same.empty()) {  // taken while nobody looked
      ++next_;
      allocator_.take(number, event.bytes);
    } else {
      number = same.back();
      same.pop_back();
    }
    number_[event.block] = number;
    place[number] = kept.size();
    kept.emplace_back(number, event.bytes);
  }
  for (const auto& [bytes, numbers] : by_bytes)  // freed while nobody looked
    for (const uint64_t number : numbers) allocator_.free(number);
  alive_ = std::move(kept);
  place_ = std::move(place);
}

void LifeReplay::take_workspace(bool& has, int64_t bytes) {
  if (workspace_ == 0 || has) return;
  has = true;
  taken_ += bytes;
  allocator_.take(next_++, bytes);
}

void LifeReplay::play(const memory::History& part, int64_t backward_began) {
  begin_part(part);
  allocator_.reset_peak();
  for (const memory::HistoryEvent& event : part.events) {
    check_deadline();
    if (event.what == HistoryWhat::taken) {
      const uint64_t number = next_++;
      number_[event.block] = number;
      place_[number] = alive_.size();
      alive_.emplace_back(number, event.bytes);
      allocator_.take(number, event.bytes);
      // The result is there before the kernel asks for its workspace.
      const std::string& op = part.names[event.op];
      const bool backward = backward_began >= 0 && event.nanoseconds >= backward_began;
      if (is_product(op)) take_workspace(has_[backward], workspace_);
      if (is_product_with_bias(op)) take_workspace(has_lt_[backward], lt_workspace);
    } else if (event.what == HistoryWhat::freed) {
      const auto found = number_.find(event.block);
      if (found == number_.end()) continue;
      allocator_.free(found->second);
      place_.erase(found->second);
      number_.erase(found);
    }
  }
}

}  // namespace braid::plan
