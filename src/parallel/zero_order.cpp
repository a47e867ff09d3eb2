// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/zero_order.h"

#include <algorithm>
#include <utility>

namespace braid::parallel {

void ZeroOrder::begin() {
  now_.clear();
  at_ = 0;
}

void ZeroOrder::end() {
  if (!now_.empty()) {
    last_ = std::exchange(now_, {});
    known_[last_.front()] = last_;
  }
  at_ = 0;
}

std::optional<size_t> ZeroOrder::step(size_t block) {
  now_.push_back(block);
  const auto known = known_.find(now_.front());
  const std::vector<size_t>& line = known == known_.end() ? last_ : known->second;
  auto here = std::find(line.begin() + static_cast<std::ptrdiff_t>(std::min(at_, line.size())),
                        line.end(), block);
  if (here == line.end()) here = std::find(line.begin(), line.end(), block);
  if (here == line.end()) return std::nullopt;
  at_ = static_cast<size_t>(here - line.begin()) + 1;
  if (at_ == line.size()) return std::nullopt;
  return line[at_];
}

std::optional<size_t> ZeroOrder::first() const {
  if (known_.size() != 1) return std::nullopt;
  return known_.begin()->first;
}

}  // namespace braid::parallel
