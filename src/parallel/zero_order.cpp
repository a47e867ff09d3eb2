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
  if (!now_.empty()) last_ = std::exchange(now_, {});
  at_ = 0;
}

std::optional<size_t> ZeroOrder::step(size_t block) {
  now_.push_back(block);
  auto here = std::find(last_.begin() + static_cast<std::ptrdiff_t>(at_), last_.end(), block);
  if (here == last_.end()) here = std::find(last_.begin(), last_.end(), block);
  if (here == last_.end()) return std::nullopt;
  at_ = static_cast<size_t>(here - last_.begin()) + 1;
  if (at_ == last_.size()) return std::nullopt;
  return last_[at_];
}

std::optional<size_t> ZeroOrder::first() const {
  if (last_.empty()) return std::nullopt;
  return last_.front();
}

}  // namespace braid::parallel
