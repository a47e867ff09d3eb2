// SPDX-License-Identifier: BSD-3-Clause
// Batches in an order that depends on (seed, epoch) alone: not on the number of ranks, nor of
// reader threads.
//
//   data::Loader loader(source, {.global_batch = 16, .workers = 4, .seed = 1},
//                       {.rank = 0, .size = 1});
//   // one epoch; the next call begins another
//   while (auto batch = loader.next()) train_on(*batch);
//
// Global batch t of an epoch is order[t*G, (t+1)*G); the ranks take runs of it, one after the other
// and as even as it goes: 8 over 3 is 3, 3, 2. All get equally many: behind its own samples a rank
// finds padding that weighs nothing, so that all make the same passes.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/state.h"
#include "braid/data/source.h"

namespace braid::data {

enum class Tail {
  drop,  // the last, incomplete global batch of an epoch is not seen (training)
  keep,  // it comes smaller (evaluation: each sample once)
  pad    // filled up from the front of the order; `Batch::samples` counts the real ones only
};

struct LoaderOptions {
  int64_t global_batch = 1;
  bool shuffle = true;
  int64_t workers = 2;  // reader threads; 0: the caller's thread reads
  int64_t queue = 2;    // batches read ahead
  uint64_t seed = 0;
  Tail tail = Tail::drop;
  int device = -1;  // index of the GPU that batches are copied to; -1: they stay on the CPU
  bool check_finite = false;  // stop at a sample with NaN or infinity, naming it
};

struct Shard {
  int64_t rank = 0;
  int64_t size = 1;
};

struct Batch {
  at::Tensor input, target;      // [local batch, ...]
  int64_t samples = 0;           // real samples in it; the rest is padding
  int64_t first = 0;             // place of the first one within the global batch
  int64_t global_samples = 0;    // real samples of all ranks
  std::vector<int64_t> weights;  // a sample each: 1, or its number of targets that count (token
                                 // models); 0 for padding
  int64_t epoch = 0;
  int64_t step = 0;    // within the epoch
  double wait = 0;     // seconds that next() waited for the readers
  bool fixed = false;  // its memory comes again for later batches: a captured step may read it
};

class Loader {
 public:
  Loader(std::shared_ptr<const Source> source, LoaderOptions options, Shard shard = {});
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  std::optional<Batch> next();  // nothing at the end of an epoch
  int64_t steps_per_epoch() const;
  int64_t epoch() const;  // of the batch that next() will give
  int64_t given() const;  // batches since the first epoch began, had all been as large as now

  State state() const;            // position, to the batch: epoch and step within it
  void load(const State& state);  // throws StorageError if the data set has another size or seed

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The order of an epoch: randperm(size) of a CPU generator seeded seed + epoch, or 0..size-1.
std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch, bool shuffle);
// The samples of one rank as a distributed sampler takes them: padded from the front to a multiple
// of the ranks, then r, r+R, ...
std::vector<int64_t> shard_of(const std::vector<int64_t>& order, Shard shard);

}  // namespace braid::data
