// SPDX-License-Identifier: BSD-3-Clause
// In which order a forward pass runs its blocks: the last one that began alike tells what comes
// next in this one. Stages of a pipeline begin with different blocks.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace braid::parallel {

class ZeroOrder {
 public:
  void begin();  // of a forward pass
  void end();
  // Notes that a block runs and gives the one that ran after it before.
  std::optional<size_t> step(size_t block);
  std::optional<size_t> first() const;  // block of a forward pass, if they all begin alike
  const std::vector<size_t>& last() const { return last_; }
  bool begins_anew(size_t block) const { return !now_.empty() && now_.front() == block; }

 private:
  std::map<size_t, std::vector<size_t>> known_;  // by their first block
  std::vector<size_t> last_, now_;
  size_t at_ = 0;  // in the one that began as this
};

}  // namespace braid::parallel
