// SPDX-License-Identifier: BSD-3-Clause
// A pipeline that is never emptied, trained by the optimizers of braid: the weights of 2BW are
// those of one process whose gradients are one update late, to the bit.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include "braid/optim/optimizer.h"
#include "braid/parallel/pipedream.h"
#include "parallel/pipeline_toy.h"
#include "support/ranks.h"

namespace braid {
namespace {

using optim::Algorithm;
using optim::Optimizer;
using parallel::PipeDream;
using parallel::ScheduleKind;
using test::Parts;
using test::PartsOptions;

constexpr int late_micros = 3, late_rounds = 5;

// W(t+1) = W(t) - step(grad f(W(t-1))).
Parts one_update_late(const PartsOptions& sizes, const optim::OptimizerOptions& options) {
  Parts newest(sizes), behind(sizes);
  Optimizer optimizer(newest.params, options);
  for (int round = 0; round < late_rounds; ++round) {
    for (int k = round * late_micros; k < (round + 1) * late_micros; ++k)
      behind.loss(behind.run({0, sizes.parts}, {}, k)).backward();
    for (size_t i = 0; i < newest.params.size(); ++i) {
      const at::Tensor weight = behind.params[i].tensor, latest = newest.params[i].tensor;
      latest.mutable_grad() = weight.grad();
      weight.mutable_grad().reset();
      weight.detach().copy_(latest.detach());  // W(t), for the next round
    }
    optimizer.step();
    optimizer.zero_grad();
  }
  return newest;
}

TEST(PipeDream, WithOptimizersIsOneUpdateLate) {
  const PartsOptions sizes{.micros = late_micros * late_rounds};
  for (const Algorithm name : {Algorithm::sgd, Algorithm::adam, Algorithm::adamw}) {
    const optim::OptimizerOptions options{.name = name,
                                          .lr = 0.01,
                                          .weight_decay = 0.1,
                                          .momentum = name == Algorithm::sgd ? 0.9 : 0};
    const Parts expected = one_update_late(sizes, options);
    test::on_ranks(3, [&](comm::Group world) {
      Parts model(sizes);
      const auto stages = test::uneven_stages(sizes.parts, 3);
      const auto mine = model.params_of(stages[static_cast<size_t>(world.rank())]);
      PipeDream flow({.kind = ScheduleKind::pipedream_2bw,
                      .ranks = 3,
                      .micros = late_micros,
                      .rounds = late_rounds},
                     world, mine);
      Optimizer optimizer(flow.params(), options);
      flow.run(model.work(stages, nullptr), [&](int) { optimizer.step(); });
      for (const Param& param : mine)
        for (const Param& other : expected.params)
          if (other.name == param.name)
            EXPECT_TRUE(at::equal(param.tensor, other.tensor)) << param.name;
    });
  }
}

}  // namespace
}  // namespace braid
