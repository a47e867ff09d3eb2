// SPDX-License-Identifier: BSD-3-Clause
// Which samples make a batch: a function of (seed, epoch, step, rank) alone. Internal.
#pragma once
#include <cstdint>
#include <vector>

#include "braid/data/loader.h"

namespace braid::data {

struct BatchPlan {
  int64_t epoch = 0, step = 0;
  std::vector<int64_t> samples = {};  // of this rank
  int64_t real = 0;                   // the first ones; padding follows them
  int64_t first = 0;                  // place of the first one within the global batch
  int64_t global = 0;                 // real ones of all ranks
};

class BatchOrder {
 public:
  BatchOrder(int64_t size, const LoaderOptions& options, Shard shard);  // throws ConfigError

  int64_t steps() const { return steps_; }  // an epoch
  int64_t largest() const;                  // samples a rank holds at most
  BatchPlan plan(int64_t epoch, int64_t step);

 private:
  int64_t size_;
  LoaderOptions options_;
  Shard shard_;
  int64_t steps_ = 0;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;  // of epoch_
};

}  // namespace braid::data
