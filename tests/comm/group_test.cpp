// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/group.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "braid/core/error.h"
#include "comm/values.h"
#include "support/expect.h"

namespace braid {
namespace {

// A backend whose calls end when the test says so.
struct Held final : comm::Backend {
  struct State {
    bool done = true;
    int waits = 0, aborts = 0;
    std::string failure = {};
    comm::Call last = {};
  };
  struct HeldWork final : comm::Work {
    explicit HeldWork(std::shared_ptr<State> state) : state(std::move(state)) {}
    void wait() override {
      ++state->waits;
      if (!state->failure.empty()) throw std::runtime_error(state->failure);
    }
    bool done() const override { return state->done; }
    std::shared_ptr<State> state;
  };

  std::unique_ptr<comm::Work> start(const comm::Call& call) override {
    state->last = call;
    return std::make_unique<HeldWork>(state);
  }
  int rank() const override { return 1; }
  int size() const override { return 4; }
  std::string_view name() const override { return "held"; }
  std::shared_ptr<Backend> split(const std::vector<int>&, const std::string&) override {
    return nullptr;
  }
  void abort() override { ++state->aborts; }
  std::shared_ptr<State> state = std::make_shared<State>();
};

struct PendingTest : testing::Test {
  std::shared_ptr<Held> held = std::make_shared<Held>();
  Held::State& state = *held->state;
  comm::Group group{held, "four"};
};

TEST_F(PendingTest, WaitsOnceAndWhenDestroyed) {
  {
    comm::Pending pending = group.barrier();
    pending.wait();
    EXPECT_EQ(state.waits, 1);
    EXPECT_TRUE(pending.done());
  }
  EXPECT_EQ(state.waits, 1) << "what was waited for is over";
  {
    const comm::Pending pending = group.barrier();
  }
  EXPECT_EQ(state.waits, 2);
}

TEST_F(PendingTest, MovesAndWaitsForWhatItReplaces) {
  comm::Pending first = group.barrier();
  comm::Pending second = std::move(first);
  EXPECT_EQ(state.waits, 0);
  second = group.barrier();
  EXPECT_EQ(state.waits, 1);
  first.wait();  // moved from: nothing under way
  EXPECT_EQ(state.waits, 1);
  second.wait();
  EXPECT_EQ(state.waits, 2);
}

TEST_F(PendingTest, OwnsItsTensors) {
  at::Tensor tensor = at::zeros({3});
  comm::Pending pending = group.all_reduce(tensor);
  state.last = {};
  EXPECT_GT(tensor.use_count(), 1);
  pending.wait();
  EXPECT_EQ(tensor.use_count(), 1) << "and lets them go when it is over";
}

TEST_F(PendingTest, GivesTheGroupUpWhenAnExceptionPassesAStuckCall) {
  const auto pass = [&](bool done) {
    state.done = done;
    try {
      const comm::Pending pending = group.barrier();
      throw std::runtime_error("something else");
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "something else");
    }
  };
  pass(true);
  EXPECT_EQ(state.aborts, 0);
  pass(false);
  EXPECT_EQ(state.aborts, 1);
}

TEST_F(PendingTest, AFailureIsToldByTheCallOrByTheNextOne) {
  state.failure = "Connection closed by peer\nat line 3";
  const std::string text = test::error_of([&] { group.all_reduce(at::zeros({3})).wait(); });
  EXPECT_TRUE(test::contains(
      text,
      "all_reduce sum Float [3] of group four (call 0) failed on rank 1 of 4: Connection closed "
      "by peer\n  why:"));
  state.failure.clear();
  EXPECT_TRUE(test::contains(test::error_of([&] { group.barrier().wait(); }),
                             "barrier in group four: all_reduce sum Float [3] of group four"));
}

TEST_F(PendingTest, AFailureInADestructorIsNotLost) {
  state.failure = "Connection closed by peer";
  {
    const comm::Pending pending = group.barrier();
  }
  state.failure.clear();
  EXPECT_TRUE(test::contains(test::error_of([&] { group.barrier().wait(); }), "Connection closed"));
}

TEST_F(PendingTest, BackendsSeeContiguousTensorsAndDividedMeans) {
  const at::Tensor ones = at::ones({2, 8});
  group.all_reduce(ones.t(), comm::Op::mean).wait();
  EXPECT_TRUE(state.last.input.is_contiguous());
  EXPECT_TRUE(state.last.input.is_same(state.last.output));
  EXPECT_TRUE(ones.equal(at::ones({2, 8}).div(4)));
  group.reduce_scatter(at::zeros({4}), ones, comm::Op::mean).wait();
  EXPECT_TRUE(state.last.input.equal(at::ones({2, 8}).div(16)));
  EXPECT_TRUE(ones.equal(at::ones({2, 8}).div(4))) << "the input was changed";
}

TEST_F(PendingTest, LeavesAutogradAlone) {
  at::Tensor weight = at::ones({3}).requires_grad_();
  const at::Tensor loss = weight.mul(weight).sum();
  group.broadcast(weight, 0).wait();
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  EXPECT_THROW(loss.backward(), std::exception) << "a saved tensor was overwritten in silence";
}

TEST_F(PendingTest, TellsWhatARankDoes) {
  EXPECT_EQ(group.doing(), "no collective yet");
  comm::Pending pending = group.all_gather(at::zeros({8}), at::zeros({2}));
  EXPECT_TRUE(test::contains(group.doing(),
                             "started all_gather Float [2] -> [8] of group four (call 0), 0."));
  pending.wait();
  EXPECT_TRUE(test::contains(group.doing(), "has finished all_gather"));
}

TEST_F(PendingTest, RefusesCallsThatCannotBe) {
  const at::Tensor two = at::zeros({2}), eight = at::zeros({8});
  const auto told = [&](auto call) { return test::error_of([&] { call().wait(); }); };
  std::string text = told([&] { return group.all_gather(at::zeros({9}), two); });
  EXPECT_TRUE(
      test::contains(text, "all_gather Float [2] -> [9] in group four of 4 ranks, on rank 1"));
  EXPECT_TRUE(test::contains(text, "the whole has 9 elements, not 4 ranks times 2"));
  text = told([&] { return group.reduce_scatter(two, at::zeros({8}, at::kDouble)); });
  EXPECT_TRUE(test::contains(text, "input is Double and output is Float"));
  text = told([&] { return group.all_reduce(at::zeros({1}).expand({4})); });
  EXPECT_TRUE(test::contains(text, "the output is expanded"));
  text = told([&] { return group.all_reduce(at::zeros({4}, at::kLong), comm::Op::mean); });
  EXPECT_TRUE(test::contains(text, "the mean of whole numbers is none"));
  text = told([&] { return group.broadcast(two, 4); });
  EXPECT_TRUE(test::contains(text, "rank 4 is not in the group"));
  text = told([&] { return group.send(two, 1); });
  EXPECT_TRUE(test::contains(text, "a rank does not send to itself"));
  text = told([&] { return group.all_to_all(eight, at::zeros({4})); });
  EXPECT_TRUE(test::contains(text, "a multiple of the ranks"));
  text = told([&] { return group.all_gather(eight, two, {2, 2, 2}); });
  EXPECT_TRUE(test::contains(text, "counts [2, 2, 2] do not share out the rows of [8]"));
  text = told([&] { return group.all_gather(eight, two, {3, 1, 2, 2}); });
  EXPECT_TRUE(
      test::contains(text, "this rank's share has 1 rows by the counts, but [2] was given"));
  text = told([&] { return group.recv({}, 0); });
  EXPECT_TRUE(test::contains(text, "undefined"));
  text = test::error_of([&] { group.split({0, 2}, "even"); });
  EXPECT_TRUE(
      test::contains(text, "group even of ranks [0, 2], split off four of 4 ranks by rank 1"));
}

TEST(Group, OfOneRankCopiesAndTalksToNobody) {
  const comm::Group alone;
  const at::Tensor in = test::values(0, {2, 3}), out = at::zeros({3, 2});
  alone.all_gather(out, in).wait();
  EXPECT_TRUE(out.equal(in.view({3, 2})));
  alone.reduce_scatter(out.zero_(), in.t(), comm::Op::mean).wait();
  EXPECT_TRUE(out.equal(in.t()));
  alone.all_reduce(out, comm::Op::mean).wait();
  EXPECT_TRUE(out.equal(in.t()));
  comm::Pending over = alone.barrier();
  EXPECT_TRUE(over.done());
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.ranks(), std::vector{0});
}

}  // namespace
}  // namespace braid
