// SPDX-License-Identifier: BSD-3-Clause
// PipeDream and 2BW: versions as in the formulas, weights as in a simulation without ranks.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>

#include "braid/memory/instruments.h"
#include "braid/parallel/pipedream.h"
#include "parallel/pipeline_toy.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using parallel::PipeDream;
using parallel::ScheduleKind;
using parallel::ScheduleOptions;
using parallel::VersionUse;
using test::Parts;
using test::PartsOptions;

// Version that stage r of p (from 0) meets with micro-batch k (from 0), as the papers say it:
// update k of plain PipeDream is w(k+1) = w(k) - lr grad f(w_1(k-p+1), w_2(k-p+2), ..., w_p(k)),
// all of them k-p+1 with vertical sync, and before there were so many the first weights.
int version_by_formula(const ScheduleOptions& o, int stage, int micro) {
  const int t = micro + 1, n = o.ranks, i = stage + 1;  // from 1
  if (o.kind == ScheduleKind::pipedream_2bw) return std::max((t - 1) / o.micros - 1, 0);
  const int behind = o.vertical_sync ? n - 1 : n - i;
  return std::max(t - 1 - behind, 0);
}

struct Momentum {  // SGD whose state shows a wrong order of updates
  std::map<std::string, at::Tensor> velocity = {};
  void step(const std::vector<Param>& params) {
    for (const Param& param : params) {
      if (!param.tensor.grad().defined()) continue;
      const auto [place, fresh] = velocity.try_emplace(param.name, param.tensor.grad());
      if (!fresh) place->second = place->second.mul(0.9).add(param.tensor.grad());
      param.tensor.detach().sub_(place->second, 0.05);
    }
  }
};

// One process that keeps all weights of all times and takes for each micro-batch those of the
// formula.
Parts simulated(const ScheduleOptions& o, const PartsOptions& sizes,
                const std::vector<Range>& stages) {
  Parts model(sizes);
  std::vector<std::vector<at::Tensor>> history;
  const auto remember = [&] {
    auto& now = history.emplace_back();
    for (const Param& param : model.params) now.push_back(param.tensor.detach().clone());
  };
  remember();
  Momentum sgd;
  const int every = o.kind == ScheduleKind::pipedream_2bw ? o.micros : 1;
  const auto load = [&](int micro) {  // micro < 0: the newest
    for (int s = 0; s < o.ranks; ++s)
      for (int64_t i = stages[s].begin * 4; i < stages[s].end * 4; ++i) {
        const auto& from = micro < 0
                               ? history.back()
                               : history[static_cast<size_t>(version_by_formula(o, s, micro))];
        model.params[static_cast<size_t>(i)].tensor.detach().copy_(from[static_cast<size_t>(i)]);
      }
  };
  for (int micro = 0; micro < sizes.micros; ++micro) {
    load(micro);
    model.loss(model.run({0, sizes.parts}, {}, micro)).backward();
    if ((micro + 1) % every != 0) continue;
    load(-1);
    sgd.step(model.params);
    for (const Param& param : model.params) param.tensor.mutable_grad().reset();
    remember();
  }
  return model;
}

class Versions : public testing::TestWithParam<ScheduleOptions> {};
INSTANTIATE_TEST_SUITE_P(
    Flushless, Versions,
    testing::Values(
        ScheduleOptions{.kind = ScheduleKind::pipedream, .ranks = 2, .rounds = 7},
        ScheduleOptions{.kind = ScheduleKind::pipedream, .ranks = 3, .rounds = 9},
        ScheduleOptions{.kind = ScheduleKind::pipedream, .ranks = 4, .rounds = 11},
        ScheduleOptions{
            .kind = ScheduleKind::pipedream, .ranks = 2, .vertical_sync = true, .rounds = 7},
        ScheduleOptions{
            .kind = ScheduleKind::pipedream, .ranks = 4, .vertical_sync = true, .rounds = 11},
        ScheduleOptions{.kind = ScheduleKind::pipedream_2bw, .ranks = 2, .micros = 2, .rounds = 5},
        ScheduleOptions{.kind = ScheduleKind::pipedream_2bw, .ranks = 3, .micros = 5, .rounds = 4},
        ScheduleOptions{
            .kind = ScheduleKind::pipedream_2bw, .ranks = 4, .micros = 4, .rounds = 4}));

TEST_P(Versions, AreThoseOfTheFormulasAndTheWeightsThoseOfASimulation) {
  const ScheduleOptions o = GetParam();
  const PartsOptions sizes{.micros = o.micros * o.rounds};
  const auto stages = test::uneven_stages(sizes.parts, o.ranks);
  const Parts expected = simulated(o, sizes, stages);
  test::on_ranks(o.ranks, [&](comm::Group world) {
    const int rank = world.rank();
    Parts model(sizes);
    const auto mine = model.params_of(stages[static_cast<size_t>(rank)]);
    PipeDream flow(o, world, mine);
    Momentum sgd;
    flow.run(model.work(stages, nullptr), [&](int) { sgd.step(flow.params()); });
    std::vector<VersionUse> log;
    for (int k = 0; k < sizes.micros; ++k) {
      const int version = version_by_formula(o, rank, k);
      log.push_back({rank, k, version, version});
    }
    EXPECT_EQ(flow.log(), log) << "rank " << rank;
    const bool doubled = o.kind == ScheduleKind::pipedream_2bw;
    if (doubled) EXPECT_LE(flow.most_versions(), 2);
    if (!doubled && !o.vertical_sync) EXPECT_EQ(flow.most_versions(), o.ranks - rank);
    if (o.vertical_sync) EXPECT_LE(flow.most_versions(), o.ranks);
    for (const Param& param : mine)
      for (const Param& other : expected.params)
        if (other.name == param.name)
          EXPECT_TRUE(at::equal(param.tensor, other.tensor)) << param.name << " of rank " << rank;
  });
}

// A version takes memory only while a micro-batch needs it, and only for what was updated.
TEST(Versions, AreCopiesOfWhatChanges) {
  const ScheduleOptions o{.kind = ScheduleKind::pipedream, .ranks = 4, .rounds = 8};
  const PartsOptions sizes{.width = 32, .micros = 8};
  const auto stages = test::uneven_stages(sizes.parts, o.ranks);
  test::on_ranks(o.ranks, [&](comm::Group world) {
    Parts model(sizes);
    const auto mine = model.params_of(stages[static_cast<size_t>(world.rank())]);
    mine[0].tensor.requires_grad_(false);  // parts.x.up: never copied
    memory::Ledger ledger;
    const memory::Instruments on({.ledger = &ledger});
    PipeDream flow(o, world, mine);
    Momentum sgd;
    flow.run(model.work(stages, nullptr), [&](int) { sgd.step(flow.params()); });
    int64_t trained = 0;
    for (const Param& param : mine)
      if (param.tensor.requires_grad()) trained += param.tensor.numel() * 8;
    int64_t most = 0;
    for (const memory::Moment& moment : ledger.timeline(memory::cpu))
      most = std::max(most, moment.by_kind[static_cast<size_t>(MemoryKind::parameter)]);
    // The last stage needs no old weights: it updates those that were there before, in place.
    const int copies = world.rank() == o.ranks - 1 ? 0 : o.ranks - world.rank();
    EXPECT_EQ(most, copies * trained) << "rank " << world.rank();
  });
}

TEST(Versions, OfASecondRunGoOnFromTheWeightsOfTheFirst) {
  const ScheduleOptions o{.kind = ScheduleKind::pipedream, .ranks = 2, .rounds = 3};
  const PartsOptions sizes{.micros = 3};
  const auto stages = test::uneven_stages(sizes.parts, o.ranks);
  test::on_ranks(o.ranks, [&](comm::Group world) {
    Parts model(sizes);
    const auto mine = model.params_of(stages[static_cast<size_t>(world.rank())]);
    PipeDream flow(o, world, mine);
    std::vector<double> losses;
    for (int round = 0; round < 20; ++round)
      flow.run(model.work(stages, &losses), [&](int) {
        for (const Param& param : flow.params())
          param.tensor.detach().sub_(param.tensor.grad(), 0.02);
      });
    if (world.rank() == 1) EXPECT_LT(losses.back(), 0.5 * losses[2]);
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_TRUE(at::equal(mine[i].tensor, flow.params()[i].tensor));
  });
}

TEST(Versions, AreForSchedulesWithoutFlush) {
  const std::string text = test::error_of(
      [] { PipeDream({.kind = ScheduleKind::gpipe, .ranks = 1, .micros = 2}, {}, {}); });
  EXPECT_TRUE(test::contains(text, "PipeDream with schedule gpipe"));
  EXPECT_TRUE(test::contains(text, "ScheduleKind::pipedream"));
}

}  // namespace
}  // namespace braid
