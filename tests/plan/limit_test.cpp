// SPDX-License-Identifier: BSD-3-Clause
// A plan keeps its time limit, also in the middle of a dry run, and tells what it left out.
#include <gtest/gtest.h>

#include <chrono>

#include "braid/core/deadline.h"
#include "braid/plan/layout.h"
#include "braid/plan/present.h"
#include "memory/recompute_error.h"
#include "plan/small.h"

namespace braid::plan {
namespace {

using braid::test::contains;
using braid::test::error_of;
using test::request_of;

// A dry run of it takes seconds.
Request large_request(int64_t gpus) {
  Request request = request_of(test::small_gpt, gpus, {"model.layers=400"});
  request.grace = 0;
  return request;
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(TimeLimit, EndsADryRunInTheMiddle) {
  const Request request = large_request(1);
  const double took = seconds_of([&] {
    const Deadline limit(0.1);
    EXPECT_THROW(dry_layout(request.options, 1), OutOfTime);
  });
  EXPECT_LT(took, 0.6);
  // Where a block is computed again in the backward pass, it is no fault of the block.
  try {
    throw OutOfTime();
  } catch (...) {
    EXPECT_THROW(memory::throw_in_segment("blocks.0"), OutOfTime);
  }
  // The limit ends with its scope.
  EXPECT_GT(dry_layout(request_of(test::small_gpt, 1).options, 1).flops, 0);
}

TEST(TimeLimit, ASearchTellsWhatItDidNotLookAt) {
  Request request = large_request(4);
  request.seconds = 0.3;
  Found found;
  const double took = seconds_of([&] { found = search(request); });
  EXPECT_LT(took, 1.2 * request.seconds + 3);
  EXPECT_TRUE(found.late);
  std::string notes;
  for (const std::string& note : found.notes) notes += note + "\n";
  EXPECT_TRUE(contains(notes, "stopped after 300 ms (--seconds)"));
  if (found.plans.empty()) {
    const std::string said = explain(no_plan_fits(request, found).complaint());
    EXPECT_TRUE(contains(said, "no layout that fits was found in"));
    EXPECT_TRUE(contains(said, "--seconds 600"));
  }
}

TEST(TimeLimit, AQuestionOfManySearchesSharesIt) {
  Request request = large_request(1);
  request.seconds = 0.4;
  const double took = seconds_of([&] {
    EXPECT_TRUE(contains(cheapest(request, 64).text, "the time limit of 400 ms (--seconds)"));
  });
  EXPECT_LT(took, 1.2 * request.seconds + 5);
  EXPECT_LT(seconds_of([&] { scaling(request, {1, 2, 4, 8}); }), 1.2 * request.seconds + 5);
}

TEST(TimeLimit, AStepOfTooManyMicroBatchesIsNotRepeatedInMemory) {
  const Request request = request_of(test::small_mlp, 1, {"train.global_batch=1000000000"});
  const std::string said =
      error_of([&] { evaluate(request, {.mesh = {.data = 1, .shard = 1}, .micro_batch = 1}); });
  EXPECT_TRUE(contains(said, "a step of 1000000000 micro-batches"));
}

}  // namespace
}  // namespace braid::plan
