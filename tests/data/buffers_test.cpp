// SPDX-License-Identifier: BSD-3-Clause
#include "data/buffers.h"

#include <gtest/gtest.h>

namespace braid::data {
namespace {

SampleSpec small_spec() {
  SampleSpec spec;
  spec.input = {{3, 4}, c10::kFloat};
  spec.target = {{}, c10::kLong};
  return spec;
}

TEST(BufferPool, UsesABatchAgainOnceNobodyHoldsIt) {
  BufferPool pool(small_spec(), 5, nullptr);
  auto batch = pool.take();
  EXPECT_EQ(batch->input.sizes(), (std::vector<int64_t>{5, 3, 4}));
  EXPECT_EQ(batch->target.sizes(), (std::vector<int64_t>{5}));
  const void* place = batch->input.const_data_ptr();
  batch.reset();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(pool.take()->input.const_data_ptr(), place);
  EXPECT_EQ(pool.allocated(), 1);
}

TEST(BufferPool, LeavesAHeldBatchAlone) {
  BufferPool pool(small_spec(), 5, nullptr);
  const at::Tensor tensor = pool.take()->input;
  EXPECT_NE(pool.take()->input.const_data_ptr(), tensor.const_data_ptr()) << "the tensor is held";
  const at::Tensor view = pool.take()->target.select(0, 4);
  pool.take();
  EXPECT_EQ(pool.allocated(), 3) << "a view holds the memory too";
}

TEST(BufferPool, DoesNotKeepAllThatACallerHoards) {
  BufferPool pool(small_spec(), 1, nullptr);
  std::vector<at::Tensor> hoard;
  for (int i = 0; i < 100; ++i) hoard.push_back(pool.take()->input);
  int64_t kept = 0;
  for (const at::Tensor& tensor : hoard) kept += tensor.use_count() > 1 ? 1 : 0;
  EXPECT_LE(kept, 16);
}

struct CountedMoment final : Moment {
  explicit CountedMoment(int& waits) : waits_(waits) {}
  void host_wait() override { ++waits_; }
  void stream_wait() override {}
  int& waits_;
};

TEST(BufferPool, WaitsForTheCopyBeforeTheMemoryIsWrittenAgain) {
  BufferPool pool(small_spec(), 2, nullptr);
  int waits = 0;
  auto batch = pool.take();
  batch->copied = std::make_unique<CountedMoment>(waits);
  batch.reset();
  pool.take();
  EXPECT_EQ(waits, 1);
  pool.take();
  EXPECT_EQ(waits, 1) << "once";
}

}  // namespace
}  // namespace braid::data
