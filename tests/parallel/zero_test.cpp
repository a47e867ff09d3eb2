// SPDX-License-Identifier: BSD-3-Clause
// ZeRO of any stage trains as one process does.
#include "braid/parallel/zero.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "braid/parallel/replicate.h"
#include "parallel/zero_toy.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using test::Toy;
using test::ToyOptions;

constexpr int64_t toy_samples = 24;

at::Tensor whole_batch() { return test::toy_values({toy_samples, 6}, "batch"); }

struct ZeroGroups {
  comm::Group shard, replicas;
};

// Hybrid: shard groups of two, side by side.
ZeroGroups groups_of(const comm::Group& world, bool hybrid) {
  if (!hybrid) return {world, {}};
  const int r = world.rank();
  return {world.split({r / 2 * 2, r / 2 * 2 + 1}, "shard"),
          world.split({r % 2, r % 2 + 2}, "replicas")};
}

struct ZeroLayout {
  const char* name;
  int ranks;
  int stage;
  bool keep = false;
  bool hybrid = false;
};

const std::map<std::string, ToyOptions>& toy_sorts() {
  static const std::map<std::string, ToyOptions> all = {
      {"even", {}},
      {"uneven", {.width = 7, .hidden = 5}},
      {"frozen", {.width = 7, .frozen = true}},
      {"tied", {.width = 5, .tied = true}},
      {"unused", {.width = 7, .unused = true}},
      {"all of it", {.width = 3, .frozen = true, .tied = true, .unused = true}},
      {"blocks alone", {.width = 5, .root = false}},
      {"in place", {.width = 5, .in_place = true}},
  };
  return all;
}

testing::AssertionResult toy_close(const at::Tensor& a, const at::Tensor& b) {
  if (a.allclose(b, 1e-12, 1e-13)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "apart by " << a.sub(b).abs().max().item<double>();
}

// Two steps of one process.
struct ToyAlone {
  explicit ToyAlone(const ToyOptions& options) : model(options) {
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      const at::Tensor loss = model.loss(whole_batch(), toy_samples);
      loss.backward();
      losses.push_back(loss.item<double>());
      std::map<std::string, at::Tensor> now;
      for (const Param& param : model.params)
        if (param.tensor.grad().defined()) now[param.name] = param.tensor.grad().clone();
      grads.push_back(now);
      std::vector<Param> once;  // tied ones are updated once
      for (const Param& param : model.params)
        if (std::none_of(once.begin(), once.end(),
                         [&](const Param& p) { return p.tensor.is_same(param.tensor); }))
          once.push_back(param);
      const at::NoGradGuard no_grad;
      test::toy_sgd(once, 0.05);
    }
  }
  Toy model;
  std::vector<double> losses;
  std::vector<std::map<std::string, at::Tensor>> grads;
};

void expect_piece_grads(const parallel::Zero& zero, const ToyAlone& alone, size_t step) {
  for (const Param& piece : zero.params()) {
    if (!piece.tensor.requires_grad()) {
      EXPECT_FALSE(piece.tensor.grad().defined()) << piece.name;
      continue;
    }
    ASSERT_TRUE(piece.tensor.grad().defined()) << piece.name;
    const auto wanted = alone.grads[step].find(piece.name);
    const at::Tensor got = piece.tensor.grad().reshape({-1});
    EXPECT_TRUE(toy_close(got, wanted == alone.grads[step].end()
                                   ? at::zeros(got.sizes(), got.options())
                                   : test::toy_piece(wanted->second, piece)))
        << piece.name << " in step " << step;
  }
}

void train_and_compare(const comm::Group& world, const ZeroGroups& groups, const ZeroLayout& layout,
                       const ToyAlone& alone, int64_t micros) {
  Toy model(alone.model.options);
  parallel::Zero zero(model.units(), groups.shard, groups.replicas,
                      {.stage = layout.stage, .average = false, .keep_gathered = layout.keep});
  const at::Tensor mine = whole_batch().chunk(world.size())[static_cast<size_t>(world.rank())];
  for (size_t step = 0; step < 2; ++step) {
    const at::Tensor loss = at::zeros({}, at::kDouble);
    for (int64_t micro = 0; micro < micros; ++micro) {
      zero.hold(micro + 1 < micros);
      const at::Tensor part =
          model.loss(mine.chunk(micros)[static_cast<size_t>(micro)], toy_samples, &zero);
      part.backward();
      loss.add_(part.detach());
    }
    zero.finish();
    world.all_reduce(loss).wait();
    EXPECT_NEAR(loss.item<double>(), alone.losses[step], 1e-12 * alone.losses[step]);
    expect_piece_grads(zero, alone, step);
    const at::NoGradGuard no_grad;
    test::toy_sgd(zero.params(), 0.05);
    zero.publish();
  }
  for (const Param& piece : zero.params())
    EXPECT_TRUE(
        toy_close(piece.tensor.reshape({-1}), test::toy_piece(alone.model.find(piece.name), piece)))
        << piece.name;
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(toy_close(model.forward(mine, &zero), alone.model.forward(mine)));
}

void all_sorts(const comm::Group& world, const ZeroLayout& layout, int64_t micros,
               const std::map<std::string, ToyAlone>& alone) {
  const ZeroGroups groups = groups_of(world, layout.hybrid);
  for (const auto& [name, wanted] : alone) {
    SCOPED_TRACE(name + ", " + std::to_string(micros) + " passes a step");
    train_and_compare(world, groups, layout, wanted, micros);
  }
}

std::map<std::string, ToyAlone> all_alone() {
  std::map<std::string, ToyAlone> all;
  for (const auto& [name, options] : toy_sorts()) all.emplace(name, options);
  return all;
}

using ZeroLayoutCase = std::tuple<ZeroLayout, int64_t>;  // and passes a step
class ZeroLayouts : public testing::TestWithParam<ZeroLayoutCase> {};
INSTANTIATE_TEST_SUITE_P(
    Stages, ZeroLayouts,
    testing::Combine(
        testing::Values(
            ZeroLayout{"stage1", 1, 1}, ZeroLayout{"stage1", 2, 1}, ZeroLayout{"stage1", 3, 1},
            ZeroLayout{"stage1", 4, 1}, ZeroLayout{"stage2", 1, 2}, ZeroLayout{"stage2", 2, 2},
            ZeroLayout{"stage2", 3, 2}, ZeroLayout{"stage2", 4, 2}, ZeroLayout{"stage3", 1, 3},
            ZeroLayout{"stage3", 2, 3}, ZeroLayout{"stage3", 3, 3}, ZeroLayout{"stage3", 4, 3},
            ZeroLayout{"stage3_keep", 2, 3, true}, ZeroLayout{"stage3_keep", 3, 3, true},
            ZeroLayout{"stage3_keep", 4, 3, true}, ZeroLayout{"hybrid1", 4, 1, false, true},
            ZeroLayout{"hybrid2", 4, 2, false, true}, ZeroLayout{"hybrid3", 4, 3, false, true},
            ZeroLayout{"hybrid3_keep", 4, 3, true, true}),
        testing::Values(int64_t{1}, int64_t{3})),
    [](const auto& info) {
      const ZeroLayout& layout = std::get<0>(info.param);
      return std::string(layout.name) + "_" + std::to_string(layout.ranks) + "_ranks_" +
             std::to_string(std::get<1>(info.param)) + "_passes";
    });

TEST_P(ZeroLayouts, TrainAsOneProcess) {
  const ZeroLayout& layout = std::get<0>(GetParam());
  const std::map<std::string, ToyAlone> alone = all_alone();
  test::on_ranks(layout.ranks, [&](comm::Group world) {
    all_sorts(world, layout, std::get<1>(GetParam()), alone);
  });
}

TEST(ZeroProcesses, TrainAsOneProcess) {
  const ZeroLayout layouts[] = {
      {"stage1", 4, 1}, {"stage2", 4, 2}, {"stage3", 4, 3}, {"hybrid", 4, 3, false, true}};
  test::on_processes(4, [&](comm::Group world) {
    std::map<std::string, ToyAlone> alone;
    alone.emplace("all of it", toy_sorts().at("all of it"));
    for (const ZeroLayout& layout : layouts) all_sorts(world, layout, /*micros=*/3, alone);
  });
}

}  // namespace
}  // namespace braid
