// SPDX-License-Identifier: BSD-3-Clause
// The search against dry runs of everything: on small spaces of real models, with as little memory
// as the smallest layout needs up to as much as the largest one does.
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/core/error.h"
#include "plan/search_evaluate.h"
#include "plan/small.h"
#include "plan/space_bound.h"

namespace braid::plan {
namespace {

using test::request_of;

// Wide, so that tensors and not segments of the allocator decide; a dry run takes no longer for it.
const std::string wide_mlp = R"(
seed: 3
model: {name: mlp, inputs: 2, hidden: [8192, 2048, 8192], outputs: 2, dropout: 0}
data: {kind: spiral, points: 100, workers: 0}
train: {steps: 12, global_batch: 8, loss: cross_entropy, device: cpu}
optimizer: {name: adam, lr: 1e-2}
report: {to: []}
)";

struct SmallSpace {
  std::string name, yaml;
  int64_t gpus = 2;
  std::vector<std::string> sets = {};
  int64_t gpus_per_node = 4;
};

std::vector<SmallSpace> small_spaces() {
  const std::vector<std::string> wide = {"model.width=1024", "model.layers=2",
                                         "train.global_batch=2"};
  std::vector<std::string> experts = wide;
  experts.emplace_back("model.moe.experts=4");
  std::vector<std::string> single = wide;
  single.emplace_back("train.precision=bf16");
  single[2] = "train.global_batch=1";
  return {
      {"mlp", wide_mlp, 2, {"train.global_batch=4"}},
      {"mlp of 3", wide_mlp, 3, {"train.global_batch=3"}, 2},
      {"mlp of 4", wide_mlp, 4, {"train.global_batch=2", "optimizer.name=sgd"}, 1},
      {"mlp of 8", wide_mlp, 8, {"train.global_batch=4", "train.precision=bf16"}},
      {"mlp of 16", wide_mlp, 16, {"train.global_batch=4", "train.clip=1"}},
      {"gpt", test::small_gpt, 2, wide},
      {"gpt of 4", test::small_gpt, 4, single, 2},
      {"experts", test::small_gpt, 2, experts, 1},
      {"vit", test::small_vit, 2, {"model.width=512", "train.global_batch=1"}},
      {"vit of 3", test::small_vit, 3, {"model.width=512", "train.global_batch=3"}, 2},
  };
}

int64_t tensors_of(const Plan& plan) {
  int64_t most = 0;
  for (const RankPeak& peak : plan.peaks) most = std::max(most, peak.bytes);
  return most;
}

struct Everything {
  explicit Everything(const Request& request) : base(base_of(request)) {
    Evaluator evaluator(request, base);
    Bounds bounds(request, base);
    for (const Choice& choice : choices_of(request)) {
      SCOPED_TRACE(to_text(choice));
      try {
        plans.push_back(evaluator.plan(choice));
      } catch (const ConfigError&) {  // the layers refuse it: the search leaves it out as well
        continue;
      }
      const Plan& plan = plans.back();
      // Below the tensors themselves, not only below what the allocator makes of them.
      EXPECT_LE(bounds.memory(choice), tensors_of(plan) + request.cluster.gpu.context.count);
      bounds.learn(choice, plan);
      for (const auto level :
           {Bounds::Level::kernels, Bounds::Level::messages, Bounds::Level::exact})
        EXPECT_GE(bounds.throughput(choice, level), plan.time.samples_per_second);
    }
  }
  // Bytes that a share of all layouts fits into.
  int64_t room(double share) const {
    std::vector<int64_t> peaks;
    for (const Plan& plan : plans) peaks.push_back(plan.peak_bytes);
    std::sort(peaks.begin(), peaks.end());
    return peaks.at(static_cast<size_t>(share * static_cast<double>(peaks.size() - 1)));
  }
  double best(int64_t room) const {
    double most = 0;
    for (const Plan& plan : plans)
      if (plan.peak_bytes <= room) most = std::max(most, plan.time.samples_per_second);
    return most;
  }

  Base base;
  std::vector<Plan> plans;
};

TEST(Exhaustive, TheSearchFindsTheOptimumOf50Spaces) {
  for (const SmallSpace& small : small_spaces()) {
    SCOPED_TRACE(small.name);
    Request request = request_of(small.yaml, small.gpus, small.sets);
    request.offload = false;
    request.cluster.gpus_per_node = small.gpus_per_node;
    request.cluster.gpu.memory = {int64_t{1} << 40};
    request.cluster.host.memory = {};
    const Everything all(request);
    ASSERT_GT(all.plans.size(), 10u);
    for (const double share : {0.0, 0.1, 0.3, 0.6, 1.0}) {
      request.memory = all.room(share);
      const Found found = search(request);
      ASSERT_TRUE(!found.plans.empty() && found.plans.front().fits);
      EXPECT_DOUBLE_EQ(found.plans.front().time.samples_per_second, all.best(request.memory))
          << to_text(found.plans.front().choice) << " with " << request.memory << " bytes";
    }
  }
}

}  // namespace
}  // namespace braid::plan
