// SPDX-License-Identifier: BSD-3-Clause
// A plain list of LibTorch modules as a pipeline: each rank trains its part of the list.
//   torchrun --no-python --nproc-per-node 3 build/bin/05_pipeline
#include <braid/braid.h>
#include <braid/parallel/pipeline.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

using braid::Carry;

int main() {
  const braid::launch::World job = braid::launch::open_world(braid::launch::environment());
  const braid::comm::Group& world = job.ranks;
  at::manual_seed(1);
  torch::nn::Sequential list(torch::nn::Linear(2, 64), torch::nn::Tanh(), torch::nn::Linear(64, 64),
                             torch::nn::Tanh(), torch::nn::Linear(64, 64), torch::nn::Tanh(),
                             torch::nn::Linear(64, 2));
  const std::vector<double> costs = {2 * 64, 64, 64 * 64, 64, 64 * 64, 64, 64 * 2};
  const auto ends = braid::parallel::split_blocks(costs, world.size());
  torch::nn::Sequential mine;  // the others end with `list`
  for (int64_t i = ends[world.rank()]; i < ends[world.rank() + 1]; ++i)
    mine->push_back(*(list->begin() + i));
  list = nullptr;

  constexpr int micros = 4;
  braid::parallel::Pipeline pipeline(
      braid::parallel::make_schedule({.ranks = world.size(), .micros = micros}), world);
  braid::optim::Optimizer adam(braid::named_params(*mine), {.lr = 1e-2});
  auto spiral = braid::data::open_source({.kind = braid::data::Kind::spiral, .points = 2000},
                                         braid::data::Split::train, 1);
  braid::data::Loader loader(spiral, {.global_batch = 100, .seed = 1});  // all ranks the same
  at::Tensor loss;
  for (int epoch = 0; epoch < 40; ++epoch)
    while (auto batch = loader.next()) {
      const auto inputs = batch->input.chunk(micros), targets = batch->target.chunk(micros);
      pipeline.run({.forward =
                        [&](int stage, const Carry& carry, int micro) {
                          return Carry{mine->forward(stage == 0 ? inputs[micro] : carry[0])};
                        },
                    .loss =
                        [&](const Carry& out, int micro) {
                          namespace F = torch::nn::functional;
                          return loss = F::cross_entropy(out[0], targets[micro]) / micros;
                        },
                    .carried =
                        [&](int, int micro) {
                          return std::vector<braid::CarrySpec>{{{inputs[micro].size(0), 64}}};
                        }});
      adam.step();
      adam.zero_grad();
    }
  if (!loss.defined()) return 0;  // the last rank has it
  std::printf("%d stages, loss %.3f\n", world.size(), micros * loss.item<double>());
  return micros * loss.item<double>() < 0.6 ? 0 : 1;
}
