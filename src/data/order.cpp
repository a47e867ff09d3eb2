// SPDX-License-Identifier: BSD-3-Clause
#include "data/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "braid/core/error.h"
#include "data/tensor.h"

namespace braid::data {

std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle) {
  if (shuffle) return random_permutation(size, seed + static_cast<uint64_t>(epoch));
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int64_t> shard_of(const std::vector<int64_t>& order, Shard shard) {
  const auto size = static_cast<int64_t>(order.size());
  const int64_t each = size == 0 ? 0 : (size + shard.size - 1) / shard.size;
  std::vector<int64_t> mine;
  for (int64_t i = 0; i < each; ++i)
    mine.push_back(order[static_cast<size_t>((shard.rank + i * shard.size) % size)]);
  return mine;
}

BatchOrder::BatchOrder(int64_t size, const LoaderOptions& options, Shard shard)
    : size_(size), options_(options), shard_(shard) {
  const int64_t batch = options.global_batch;
  steps_ = options.tail == Tail::drop ? size / batch : (size + batch - 1) / batch;
  if (batch < 1 || shard.size < 1 || shard.rank < 0 || shard.rank >= shard.size ||
      options.workers < 0)
    throw ConfigError(
        {.what = fmt::format("global batch {}, rank {} of {}, {} workers", batch, shard.rank,
                             shard.size, options.workers),
         .why = "a batch holds at least one sample and a rank lies below the number of ranks",
         .fix = "set train.global_batch above 0 and data.workers to 0 or more"});
  if (steps_ == 0)
    throw ConfigError(
        {.what = fmt::format("a global batch of {} from a data set of {} samples", batch, size),
         .why = "incomplete batches are dropped in training, so there would be no step at all",
         .fix = fmt::format("set train.global_batch to at most {}, or use more data", size)});
}

int64_t BatchOrder::largest() const {
  return (options_.global_batch + shard_.size - 1) / shard_.size;
}

BatchPlan BatchOrder::plan(int64_t epoch, int64_t step) {
  if (epoch != epoch_ || order_.empty()) {
    order_ = epoch_order(size_, options_.seed, epoch, options_.shuffle);
    epoch_ = epoch;
  }
  BatchPlan plan{.epoch = epoch, .step = step};
  const int64_t start = step * options_.global_batch;
  plan.global = std::min(options_.global_batch, size_ - start);
  const int64_t shared = options_.tail == Tail::pad ? options_.global_batch : plan.global;
  const int64_t even = shared / shard_.size, larger = shared % shard_.size;
  const int64_t mine = even + (shard_.rank < larger ? 1 : 0);
  plan.first = shard_.rank * even + std::min(shard_.rank, larger);
  plan.real = std::clamp<int64_t>(plan.global - plan.first, 0, mine);
  const int64_t longest = even + (larger > 0 ? 1 : 0);
  for (int64_t k = 0; k < longest; ++k)
    plan.samples.push_back(
        order_[static_cast<size_t>((start + (plan.first + k) % shared) % size_)]);
  return plan;
}

}  // namespace braid::data
