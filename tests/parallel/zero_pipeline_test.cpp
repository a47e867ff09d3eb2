// SPDX-License-Identifier: BSD-3-Clause
// ZeRO within a pipeline: passes of several micro-batches and stages stand between each other, and
// gradients of weights come late.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>

#include "braid/comm/counting.h"
#include "braid/kernels/deferred.h"
#include "braid/parallel/replicate.h"
#include "braid/parallel/syncs.h"
#include "braid/parallel/zero.h"
#include "parallel/zero_toy.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using parallel::Sync;
using parallel::Syncs;
using parallel::Zero;

constexpr int64_t staged_samples = 24, staged_micros = 3;
at::Tensor staged_batch() { return test::toy_values({staged_samples, 6}, "batch"); }

// Two stages of two blocks; the first has the embedding, the second the head.
struct Staged {
  explicit Staged(bool split = false) {
    later->set_active(split);
    add("embed", {6, 5});
    for (int i = 0; i < 4; ++i) {
      const std::string block = "blocks." + std::to_string(i) + ".";
      add(block + "gain", {5});
      add(block + "weight", {5, 5});
      add(block + "bias", {5});
    }
    add("head", {5, 5});
  }

  void add(const std::string& name, std::vector<int64_t> sizes) {
    params.push_back({name, test::toy_values(sizes, name).requires_grad_()});
  }
  at::Tensor find(const std::string& name) const {
    for (const Param& param : params)
      if (param.name == name) return param.tensor;
    return {};
  }
  at::Tensor linear(const at::Tensor& x, const std::string& weight, const std::string& bias) const {
    return kernels::linear(x, find(weight), find(bias), later);
  }

  std::vector<Param> params_of(int stage) const {
    const auto half = params.begin() + 7;
    return stage == 0 ? std::vector<Param>(params.begin(), half)
                      : std::vector<Param>(half, params.end());
  }
  std::vector<std::string> blocks_of(int stage) const {
    return {"blocks." + std::to_string(2 * stage), "blocks." + std::to_string(2 * stage + 1)};
  }

  at::Tensor stage(int number, const at::Tensor& x, BlockRunner* runner) const {
    return run_block(runner, "", x, [&](const at::Tensor& in) {
      at::Tensor y = number == 0 ? at::matmul(in, find("embed")) : in;
      for (const std::string& block : blocks_of(number))
        y = run_block(runner, block, y, [&](const at::Tensor& z) {
          return z.add(
              linear(z.mul(find(block + ".gain")), block + ".weight", block + ".bias").tanh());
        });
      return number == 0 ? y : linear(y, "head", "");
    });
  }
  at::Tensor loss(const at::Tensor& output) const {
    return output.square().sum().div(staged_samples);
  }

  std::shared_ptr<kernels::Deferred> later = std::make_shared<kernels::Deferred>();
  std::vector<Param> params;
};

enum class Do { forward, backward, weights };
struct Deed {
  Do what;
  int stage, micro;
};

// Both stages on one rank, as an interleaved schedule with split backward passes has them.
const std::vector<Deed>& deeds() {
  static const std::vector<Deed> all = {
      {Do::forward, 0, 0},  {Do::forward, 0, 1},  {Do::forward, 1, 0},  {Do::backward, 1, 0},
      {Do::forward, 1, 1},  {Do::backward, 0, 0}, {Do::forward, 0, 2},  {Do::weights, 1, 0},
      {Do::backward, 1, 1}, {Do::forward, 1, 2},  {Do::backward, 0, 1}, {Do::weights, 0, 0},
      {Do::backward, 1, 2}, {Do::weights, 1, 1},  {Do::backward, 0, 2}, {Do::weights, 0, 1},
      {Do::weights, 1, 2},  {Do::weights, 0, 2}};
  return all;
}

// Runs the deeds of a step; a gradient of each pass goes where it belongs.
struct StagedRun {
  const Staged& model;
  const Syncs& syncs;  // one a stage, or one of all stages
  at::Tensor samples;  // of this rank
  std::map<std::pair<int, int>, at::Tensor> inputs = {}, outputs = {};

  Sync& sync(int stage) const { return syncs.at(static_cast<size_t>(stage) % syncs.size()); }
  static int64_t key(const Deed& deed) { return deed.stage * 100 + deed.micro; }
  void run(const Deed& deed) {
    const std::pair here(deed.stage, deed.micro);
    if (deed.what == Do::weights) return model.later->run(key(deed));
    if (deed.what == Do::backward) {
      sync(deed.stage).hold(deed.micro + 1 < staged_micros);
      if (deed.stage == 1) return model.loss(outputs.at(here)).backward();
      return outputs.at(here).backward(inputs.at({1, deed.micro}).grad());
    }
    const auto at = static_cast<size_t>(deed.micro);
    inputs[here] = deed.stage == 0 ? samples.chunk(staged_micros)[at]
                                   : outputs.at({0, deed.micro}).detach().requires_grad_();
    model.later->open(key(deed));
    auto* runner = dynamic_cast<BlockRunner*>(&sync(deed.stage));
    outputs[here] = model.stage(deed.stage, inputs[here], runner);
  }
};

std::vector<Staged> staged_alone() {
  std::vector<Staged> steps;
  Staged model;
  for (int step = 0; step < 2; ++step) {
    for (const Param& param : model.params) param.tensor.mutable_grad().reset();
    model.loss(model.stage(1, model.stage(0, staged_batch(), nullptr), nullptr)).backward();
    Staged& kept = steps.emplace_back();
    for (size_t i = 0; i < model.params.size(); ++i)
      kept.params[i].tensor.mutable_grad() = model.params[i].tensor.grad().clone();
    const at::NoGradGuard no_grad;
    test::toy_sgd(model.params, 0.05);
  }
  return steps;
}

void expect_steps(const comm::Group& world, const Staged& model, Syncs& syncs,
                  const std::vector<Staged>& alone) {
  const at::Tensor mine = staged_batch().chunk(world.size())[static_cast<size_t>(world.rank())];
  for (size_t step = 0; step < 2; ++step) {
    StagedRun run{model, syncs, mine};
    for (const Deed& deed : deeds()) run.run(deed);
    EXPECT_EQ(model.later->waiting(), 0u);
    syncs.finish();
    for (const Param& piece : syncs.params()) {
      const at::Tensor& wanted = alone[step].find(piece.name).grad();
      const at::Tensor got = piece.tensor.grad().reshape({-1});
      const at::Tensor same = wanted.reshape({-1}).narrow(0, piece.piece.first, got.numel());
      EXPECT_TRUE(got.allclose(same, 1e-12, 1e-13))
          << piece.name << " in step " << step << " " << got.sub(same).abs().max();
    }
    const at::NoGradGuard no_grad;
    test::toy_sgd(syncs.params(), 0.05);
    for (const Param& piece : syncs.params()) piece.tensor.mutable_grad().reset();
    syncs.publish();
  }
}

struct StagedCase {
  int stage;
  bool keep, split, late, hybrid;
};
class ZeroPipeline : public testing::TestWithParam<StagedCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, ZeroPipeline,
    testing::Values(
        StagedCase{1, false, false, false, false}, StagedCase{1, false, true, true, false},
        StagedCase{1, false, true, true, true}, StagedCase{2, false, false, false, false},
        StagedCase{2, false, false, true, false}, StagedCase{2, false, true, true, false},
        StagedCase{2, false, true, true, true}, StagedCase{3, false, false, false, false},
        StagedCase{3, true, false, false, false}, StagedCase{3, false, false, true, false},
        StagedCase{3, false, true, true, false}, StagedCase{3, true, true, true, false},
        StagedCase{3, false, true, true, true}));

TEST_P(ZeroPipeline, TrainsAsOneProcess) {
  const StagedCase c = GetParam();
  const std::vector<Staged> alone = staged_alone();
  test::on_ranks(c.hybrid ? 4 : 2, [&](comm::Group world) {
    const int r = world.rank();
    const comm::Group shard = c.hybrid ? world.split({r / 2 * 2, r / 2 * 2 + 1}, "shard") : world;
    const comm::Group replicas =
        c.hybrid ? world.split({r % 2, r % 2 + 2}, "replicas") : comm::Group();
    const Staged model(c.split);
    std::vector<std::unique_ptr<Sync>> parts;
    for (int stage = 0; stage < 2; ++stage)
      parts.push_back(std::make_unique<Zero>(
          parallel::units_of(model.params_of(stage), model.blocks_of(stage)), shard, replicas,
          parallel::ZeroOptions{
              .stage = c.stage, .average = false, .keep_gathered = c.keep, .late = c.late}));
    Syncs syncs(std::move(parts));
    EXPECT_EQ(syncs.owners().size(), 2);
    expect_steps(world, model, syncs, alone);
  });
}

// The blocks of both stages in one: each backward pass sends those that it gave gradients.
TEST(ZeroPipeline, OneForAllStagesOfARank) {
  const std::vector<Staged> alone = staged_alone();
  test::on_ranks(2, [&](comm::Group world) {
    for (int stage = 1; stage <= 3; ++stage)
      for (const bool split : {false, true}) {
        const auto own = std::make_shared<comm::Traffic>();
        const Staged model(split);
        std::vector<std::string> blocks = model.blocks_of(0);
        for (const std::string& block : model.blocks_of(1)) blocks.push_back(block);
        std::vector<std::unique_ptr<Sync>> parts;
        parts.push_back(std::make_unique<Zero>(
            parallel::units_of(model.params, blocks),
            comm::Group(comm::counting(world.backend(), own)), comm::Group(),
            parallel::ZeroOptions{.stage = stage, .average = false, .late = true}));
        Syncs syncs(std::move(parts));
        expect_steps(world, model, syncs, alone);
        // With padding: a block has 35 elements, the root 55, which both stages have some of.
        const int64_t block = 36 * 8, root = 56 * 8;
        const int64_t sent = own->bytes(comm::Kind::reduce_scatter) / 2;  // a step
        if (stage == 1) {
          EXPECT_EQ(sent, 4 * block + root);
        } else if (!split) {
          EXPECT_EQ(sent, staged_micros * 2 * (2 * block + root));
        }
      }
  });
}

TEST(ZeroPipeline, ReplicasTakeLateGradients) {
  const std::vector<Staged> alone = staged_alone();
  test::on_ranks(2, [&](comm::Group world) {
    for (const bool split : {false, true}) {
      const Staged model(split);
      std::vector<std::unique_ptr<Sync>> parts;
      for (int stage = 0; stage < 2; ++stage)
        parts.push_back(std::make_unique<parallel::Replicate>(
            model.params_of(stage), world,
            parallel::ReplicateOptions{.average = false, .late = split}));
      Syncs syncs(std::move(parts));
      expect_steps(world, model, syncs, alone);
    }
  });
}

TEST(ZeroPipeline, OneParameterInTwoStagesIsRefused) {
  const Staged model;
  std::vector<std::unique_ptr<Sync>> parts;
  for (int i = 0; i < 2; ++i)
    parts.push_back(std::make_unique<parallel::Replicate>(model.params_of(0), comm::Group()));
  EXPECT_TRUE(test::contains(test::error_of([&] { Syncs both(std::move(parts)); }),
                             "parameter embed is in two stages"));
}

// As the tied head of another stage sends it; also where no pass of this stage uses the weight.
TEST(ZeroPipeline, AGradientFromElsewhereCounts) {
  const test::ToyOptions options = {.width = 5, .unused = true};
  test::Toy alone(options);
  alone.loss(staged_batch(), 24).backward();
  test::on_ranks(2, [&](comm::Group world) {
    for (int stage = 1; stage <= 3; ++stage)
      for (const bool late : {false, true})
        for (const std::string name : {"embed.weight", "spare", "blocks.1.spare", "blocks.1.up"}) {
          test::Toy model(options);
          Zero zero(model.units(), world, {}, {.stage = stage, .average = false, .late = late});
          const at::Tensor mine = staged_batch().chunk(2)[static_cast<size_t>(world.rank())];
          for (int64_t micro = 0; micro < 2; ++micro) {
            zero.hold(micro == 0);
            at::Tensor& grad = model.find(name).mutable_grad();
            const at::Tensor sent =
                at::full(model.find(name).sizes(), world.rank() + 1.0, at::kDouble);
            if (micro == 1 && grad.defined()) grad.add_(sent);
            if (micro == 1 && !grad.defined()) grad = sent;
            model.loss(mine.chunk(2)[static_cast<size_t>(micro)], 24, &zero).backward();
          }
          zero.finish();
          for (const Param& piece : zero.params()) {
            const at::Tensor& local = alone.find(piece.name).grad();
            at::Tensor wanted = at::zeros(piece.tensor.sizes(), at::kDouble).view({-1});
            if (local.defined()) wanted.add_(test::toy_piece(local, piece));
            if (piece.name == name) wanted.add_(3);
            EXPECT_TRUE(piece.tensor.grad().reshape({-1}).allclose(wanted, 1e-12, 1e-13))
                << piece.name << ", sent to " << name << " in stage " << stage;
          }
        }
  });
}

}  // namespace
}  // namespace braid
