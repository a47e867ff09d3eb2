// SPDX-License-Identifier: BSD-3-Clause
// A small machine and small models, for plans that take milliseconds.
#pragma once
#include <string>
#include <vector>

#include "braid/core/config.h"
#include "braid/plan/search.h"
#include "support/expect.h"

namespace braid::plan::test {

inline Cluster small_cluster() {
  Cluster machine;
  machine.name = "small";
  machine.gpus_per_node = 4;
  machine.nodes = 16;
  machine.gpu.name = "small GPU";
  machine.gpu.memory = {int64_t{1} << 30};
  machine.gpu.bandwidth = 100e9;
  machine.gpu.peak = {
      {"fp64", 0.1e12}, {"fp32", 0.2e12}, {"tf32", 1e12}, {"bf16", 2e12}, {"fp16", 2e12}};
  machine.gpu.launch = 2e-7;
  machine.gpu.graph_launch = 1e-7;
  machine.gpu.gemm_share = 0.8;
  machine.gpu.stream_share = 0.8;
  machine.inside = {.latency = 1e-6, .bandwidth = 20e9, .share = 0.8};
  machine.between = {.latency = 3e-6, .bandwidth = 4e9, .share = 0.8};
  machine.host.copy_bandwidth = 4e9;
  machine.host.memory = {int64_t{64} << 30};
  return machine;
}

inline const std::string small_gpt = R"(
seed: 3
model: {name: gpt, vocabulary: 256, sequence: 64, layers: 4, heads: 4, width: 64}
data: {kind: synthetic, input_shape: [64], target_shape: [64], classes: 256, samples: 64, workers: 0, sequence: 64}
train: {steps: 100, global_batch: 16, loss: cross_entropy, device: cpu}
optimizer: {name: adamw, lr: 1e-3}
report: {to: []}
)";

inline const std::string small_vit = R"(
seed: 3
model: {name: vit, image: [16, 32], patch: 4, channels_in: 3, channels_out: 3, width: 32, depth: 2, heads: 4}
data: {kind: synthetic, input_shape: [3, 16, 32], samples: 20, workers: 0}
train: {steps: 6, global_batch: 8, loss: relative_l2, device: cpu}
optimizer: {name: adam, lr: 1e-3}
report: {to: []}
)";

inline const std::string small_mlp = R"(
seed: 3
model: {name: mlp, inputs: 2, hidden: [64, 32], outputs: 2, dropout: 0}
data: {kind: spiral, points: 100, workers: 0}
train: {steps: 12, global_batch: 12, loss: cross_entropy, device: cpu}
optimizer: {name: adam, lr: 1e-2}
report: {to: []}
)";

inline train::RunOptions options_of(const std::string& yaml,
                                    const std::vector<std::string>& sets = {}) {
  Config config = Config::parse(yaml);
  for (const std::string& set : sets)
    config.set(set.substr(0, set.find('=')), set.substr(set.find('=') + 1));
  return read_options<train::RunOptions>(config);
}

inline Request request_of(const std::string& yaml, int64_t gpus,
                          const std::vector<std::string>& sets = {}) {
  Request request;
  request.options = options_of(yaml, sets);
  request.cluster = small_cluster();
  request.gpus = gpus;
  return request;
}

}  // namespace braid::plan::test
