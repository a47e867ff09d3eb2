// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "braid/data/npy.h"
#include "data/counting_source.h"
#include "support/expect.h"

namespace braid::data {
namespace {

using Indices = std::vector<int64_t>;
using test::contains;
using test::error_of;

std::shared_ptr<CountingSource> counting(int64_t size, bool slow = false) {
  auto source = std::make_shared<CountingSource>(size);
  source->slow = slow;
  return source;
}

// One epoch of batches, each as its indices.
std::vector<Indices> epoch_of(Loader& loader) {
  std::vector<Indices> batches;
  while (auto batch = loader.next()) batches.push_back(indices_of(*batch));
  return batches;
}

TEST(Order, IsThatOfADistributedSampler) {
  const auto shards = [](int64_t epoch, bool shuffle) {
    const Indices order = epoch_order(10, 0, epoch, shuffle);
    return std::vector<Indices>{shard_of(order, {0, 3}), shard_of(order, {1, 3}),
                                shard_of(order, {2, 3})};
  };
  EXPECT_EQ(shards(0, true), (std::vector<Indices>{{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}));
  EXPECT_EQ(shards(1, true), (std::vector<Indices>{{5, 2, 9, 4}, {6, 0, 3, 5}, {1, 8, 7, 6}}));
  EXPECT_EQ(shards(0, false), (std::vector<Indices>{{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}}));
}

TEST(Order, IsRandpermOfSeedPlusEpoch) {
  const at::Tensor golden =
      read_npy(std::string(BRAID_SOURCE_DIR) + "/tests/golden/data_order.npy");
  const auto* first = golden.const_data_ptr<int64_t>();
  EXPECT_EQ(epoch_order(100, 7, 2, true), Indices(first, first + 100));
}

TEST(Loader, GivesTheSameBatchesWithAnyNumberOfThreads) {
  std::vector<std::vector<Indices>> runs;
  for (int64_t workers : {0, 1, 4}) {
    Loader loader(counting(37, true),
                  {.global_batch = 5, .workers = workers, .queue = 3, .seed = 9});
    EXPECT_EQ(loader.steps_per_epoch(), 7);
    runs.push_back(epoch_of(loader));
    for (Indices& batch : epoch_of(loader)) runs.back().push_back(batch);
  }
  EXPECT_EQ(runs[0].size(), 14U);
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

TEST(Loader, FillsTheValuesOfEverySample) {
  Loader loader(counting(16, true), {.global_batch = 4, .shuffle = false, .workers = 3});
  epoch_of(loader);
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->epoch, 1);
  EXPECT_EQ(batch->samples, 4);
  EXPECT_EQ(batch->weights, (Indices{1, 2, 1, 2})) << "targets of -100 do not count";
  for (int64_t k = 0; k < 4; ++k)
    for (int64_t i = 0; i < 6; ++i)
      EXPECT_EQ(batch->input.const_data_ptr<float>()[k * 6 + i],
                static_cast<float>(1000 + k * 10 + i));
}

TEST(Loader, SplitsAGlobalBatchOverRanks) {
  Loader alone(counting(24), {.global_batch = 8, .workers = 0, .seed = 2});
  const auto whole = epoch_of(alone);
  for (int64_t size : {1, 2, 3}) {
    std::vector<Indices> together(whole.size());
    for (int64_t rank = 0; rank < size; ++rank) {
      Loader loader(counting(24), {.global_batch = 8, .workers = 2, .seed = 2}, {rank, size});
      while (const auto batch = loader.next()) {
        Indices& all = together[static_cast<size_t>(batch->step)];
        EXPECT_EQ(batch->samples, (8 + size - 1 - rank) / size) << "8 over 3 is 3, 3, 2";
        EXPECT_EQ(batch->input.size(0), (8 + size - 1) / size) << "as many on every rank";
        EXPECT_EQ(batch->first, static_cast<int64_t>(all.size()));
        EXPECT_EQ(batch->global_samples, 8);
        const Indices mine = indices_of(*batch);
        all.insert(all.end(), mine.begin(), mine.begin() + batch->samples);
      }
    }
    EXPECT_EQ(together, whole);
  }
}

TEST(Loader, DropsKeepsOrPadsTheTail) {
  Loader drop(counting(10), {.global_batch = 4, .shuffle = false});
  EXPECT_EQ(epoch_of(drop).size(), 2U);

  Loader keep(counting(10), {.global_batch = 4, .shuffle = false, .tail = Tail::keep});
  EXPECT_EQ(epoch_of(keep), (std::vector<Indices>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));

  Loader pad(counting(10), {.global_batch = 4, .shuffle = false, .tail = Tail::pad});
  pad.next(), pad.next();
  const auto last = pad.next();
  ASSERT_TRUE(last);
  EXPECT_EQ(indices_of(*last), (Indices{8, 9, 0, 1}));
  EXPECT_EQ(last->samples, 2);
  EXPECT_EQ(last->weights, (Indices{1, 2, 0, 0}));
}

TEST(Loader, GivesEveryRankAsManyBatches) {
  for (int64_t rank = 0; rank < 3; ++rank) {
    Loader loader(counting(9), {.global_batch = 4, .shuffle = false, .tail = Tail::keep},
                  {rank, 3});
    loader.next(), loader.next();
    const auto last = loader.next();
    ASSERT_TRUE(last);
    EXPECT_FALSE(loader.next());
    EXPECT_EQ(last->samples, rank == 0 ? 1 : 0);
    EXPECT_EQ(last->weights, Indices{rank == 0 ? 1 : 0}) << "padding where nothing is left";
    EXPECT_EQ(indices_of(*last), Indices{8});
  }
}

TEST(Loader, ResumesExactlyAfterAnyBatch) {
  const LoaderOptions options{.global_batch = 3, .workers = 2, .queue = 3, .seed = 4};
  Loader unbroken(counting(14), options);
  std::vector<std::optional<Indices>> all;
  std::vector<State> states = {unbroken.state()};
  for (int call = 0; call < 15; ++call) {  // three epochs of four batches, and their ends
    const auto batch = unbroken.next();
    all.push_back(batch ? std::optional(indices_of(*batch)) : std::nullopt);
    states.push_back(unbroken.state());
  }
  for (size_t from = 0; from < states.size(); ++from) {
    Loader resumed(counting(14), options);
    resumed.next();  // it had begun elsewhere, and read ahead
    resumed.load(states[from]);
    for (size_t call = from; call < all.size(); ++call) {
      const auto batch = resumed.next();
      EXPECT_EQ(batch ? std::optional(indices_of(*batch)) : std::nullopt, all[call])
          << from << " " << call;
    }
  }
}

TEST(Loader, SaysWhoseEpochComesNext) {
  Loader loader(counting(4), {.global_batch = 2});
  EXPECT_EQ(loader.epoch(), 0);
  loader.next(), loader.next();
  EXPECT_EQ(loader.epoch(), 1);
  EXPECT_FALSE(loader.next());
  EXPECT_EQ(loader.epoch(), 1);
}

TEST(Loader, RefusesAPositionInOtherData) {
  const LoaderOptions options{.global_batch = 4, .seed = 1};
  Loader saved(counting(16), options);
  saved.next();
  Loader other(counting(12), options), seeded(counting(16), {.global_batch = 4, .seed = 2});
  Loader wider(counting(16), {.global_batch = 8, .seed = 1}),
      finer(counting(16), {.global_batch = 2, .seed = 1});
  EXPECT_TRUE(
      contains(error_of([&] { other.load(saved.state()); }), "has size 16, this run has 12"));
  EXPECT_TRUE(
      contains(error_of([&] { seeded.load(saved.state()); }), "has seed 1, this run has 2"));
  EXPECT_TRUE(
      contains(error_of([&] { wider.load(saved.state()); }), "no multiple of the global batch 8"));
  finer.load(saved.state());
  EXPECT_EQ(finer.next()->step, 2);
}

TEST(Loader, RefusesABatchLargerThanTheData) {
  const std::string text = error_of([] { Loader(counting(6), {.global_batch = 8}); });
  EXPECT_TRUE(contains(text, "a global batch of 8 from a data set of 6 samples"));
  EXPECT_TRUE(contains(text, "set train.global_batch to at most 6"));
}

TEST(Loader, ReadsAheadButNoFurther) {
  auto source = counting(100);
  Loader loader(source, {.global_batch = 2, .workers = 2, .queue = 3});
  loader.next();
  for (int i = 0; i < 200 && source->reads < 8; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(source->reads, 2 + 3 * 2) << "the batch given and three ahead";
}

TEST(Loader, NeverWritesIntoABatchThatIsStillHeld) {
  Loader loader(counting(60), {.global_batch = 2, .shuffle = false, .workers = 2});
  std::vector<Batch> held;
  std::vector<at::Tensor> views;
  while (auto batch = loader.next()) {
    if (batch->step % 2 == 0)
      held.push_back(*batch);
    else
      views.push_back(batch->target.select(0, 1));
  }
  for (const Batch& batch : held)
    EXPECT_EQ(indices_of(batch), (Indices{batch.step * 2, batch.step * 2 + 1}));
  for (size_t i = 0; i < views.size(); ++i)
    EXPECT_EQ(views[i].const_data_ptr<int64_t>()[0], static_cast<int64_t>(i) * 4 + 3);
}

}  // namespace
}  // namespace braid::data
