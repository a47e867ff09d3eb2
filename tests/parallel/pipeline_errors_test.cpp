// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong in a pipeline is said in a sentence, and ends all ranks.
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

#include "parallel/pipeline_toy.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using parallel::make_schedule;
using parallel::Pipeline;
using parallel::PipelineWork;
using parallel::ScheduleKind;
using test::contains;
using test::error_of;
using test::Parts;
using test::PartsOptions;

std::string alone_error(const parallel::ScheduleOptions& options, const PipelineWork& work) {
  return error_of([&] { Pipeline(make_schedule(options), comm::Group()).run(work); });
}

TEST(PipelineErrors, OfAScheduleThatDoesNotFitTheGroup) {
  const std::string text =
      error_of([] { Pipeline(make_schedule({.ranks = 3, .micros = 2}), comm::Group()); });
  EXPECT_TRUE(contains(text, "schedule 1f1b is for 3 ranks, group alone has 1"));
  EXPECT_TRUE(contains(text, ".ranks = group.size()"));
}

TEST(PipelineErrors, OfAStageWithoutAFunction) {
  const std::string text = alone_error({}, {});
  EXPECT_TRUE(contains(text, "stage 0 of rank 0 has no function"));
  EXPECT_TRUE(contains(text, "set PipelineWork::forward"));
}

TEST(PipelineErrors, OfAMissingLossOrCarry) {
  PipelineWork work{.forward = [](int, const Carry& carry, int) { return carry; }};
  EXPECT_TRUE(contains(alone_error({}, work), "stage 0, the last one, has no loss"));
  const std::string text = error_of(
      [&] { Pipeline(make_schedule({.ranks = 2}), comm::Group(comm::dry(0, 2))).run(work); });
  EXPECT_TRUE(contains(text, "2 stages, and nothing says what they carry"));
}

TEST(PipelineErrors, OfWhatTheScheduleAsksForAndNobodyDoes) {
  const PipelineWork work{.forward = [](int, const Carry& carry, int) { return carry; },
                          .loss = [](const Carry&, int) { return at::Tensor(); }};
  EXPECT_TRUE(contains(
      error_of([] { Pipeline(make_schedule({.kind = ScheduleKind::zb_h1}), comm::Group()); }),
      "schedule zb_h1 splits the backward pass, the model does not"));
  EXPECT_TRUE(contains(alone_error({.kind = ScheduleKind::pipedream}, work),
                       "schedule pipedream updates weights within a run"));
  EXPECT_TRUE(contains(alone_error({.gathers = true}, work),
                       "schedule 1f1b gathers weights, and nothing does it"));
}

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(PipelineErrors, OfWhatIsNotWhatWasSaid) {
  test::on_ranks(2, [&](comm::Group world) {
    Parts model({.micros = 3});
    PipelineWork work = model.work(test::uneven_stages(9, 2), nullptr);
    work.carried = [&](int, int micro) {
      auto specs = model.carried(micro);
      if (micro == 1) specs[0].shape[1] = 7;
      return specs;
    };
    Pipeline pipeline(make_schedule({.ranks = 2, .micros = 3}), world);
    std::string text;
    const double seconds = seconds_of([&] { text = error_of([&] { pipeline.run(work); }); });
    EXPECT_LT(seconds, 5);
    if (world.rank() == 0) {
      EXPECT_TRUE(contains(text,
                           "stage 0 gave Double [3, 6], Double [3, 2], Long [3] for "
                           "micro-batch 1, but stage 1 expects Double [3, 7]"));
      EXPECT_TRUE(contains(text, "let PipelineWork::carried say"));
    }
  });
}

// Wherever it happens, all ranks end within seconds, the one that failed with its own error.
TEST(PipelineErrors, OfOneRankEndTheOthers) {
  for (const bool in_backward : {false, true})
    for (const int failing : {in_backward ? 0 : 2, 1})
      test::on_ranks(3, [&](comm::Group world) {
        Parts model({.micros = 6});
        PipelineWork work = model.work(test::uneven_stages(9, 3), nullptr);
        const auto fail = [failing](int stage, int micro) {
          if (stage == failing && micro == 1) throw std::runtime_error("out of paper");
        };
        if (in_backward)
          work.before_backward = [=](int stage, int micro, bool) { fail(stage, micro); };
        else
          work.forward = [=, inner = work.forward](int stage, const Carry& carry, int micro) {
            fail(stage, micro);
            return inner(stage, carry, micro);
          };
        Pipeline pipeline(make_schedule({.ranks = 3, .micros = 6}), world);
        const double seconds = seconds_of([&] {
          try {
            pipeline.run(work);
            ADD_FAILURE() << "rank " << world.rank() << " did not hear of it";
          } catch (const CommError& error) {
            EXPECT_NE(world.rank(), failing) << error.what();
          } catch (const std::runtime_error& error) {
            EXPECT_STREQ(error.what(), "out of paper");
            EXPECT_EQ(world.rank(), failing);
          }
        });
        EXPECT_LT(seconds, 5) << "rank " << world.rank();
      });
}

}  // namespace
}  // namespace braid
