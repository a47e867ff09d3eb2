// SPDX-License-Identifier: BSD-3-Clause
// A plain LibTorch module and loop on many ranks: the three lines marked with -> make it so.
//   torchrun --no-python --nproc-per-node 3 build/bin/03_many_ranks
#include <braid/braid.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

struct Net : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 64));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(64, 64));
  torch::nn::Linear third = register_module("third", torch::nn::Linear(64, 2));
  at::Tensor forward(const at::Tensor& x) { return third(second(first(x).relu()).relu()); }
};

int main() {
  const braid::launch::World job = braid::launch::open_world(braid::launch::environment());  // ->
  const braid::comm::Group& world = job.ranks;
  Net net;
  braid::parallel::Replicate replicas(net, world);  // ->
  auto spiral = braid::data::open_source({.kind = braid::data::Kind::spiral, .points = 2000},
                                         braid::data::Split::train, 1);
  braid::data::Loader loader(spiral, {.global_batch = 96, .seed = 1},
                             {.rank = world.rank(), .size = world.size()});
  braid::optim::Optimizer adam(braid::named_params(net),
                               {.name = braid::optim::Algorithm::adam, .lr = 1e-2});
  at::Tensor loss;
  for (int epoch = 0; epoch < 40; ++epoch)
    while (auto batch = loader.next()) {
      loss = torch::nn::functional::cross_entropy(net.forward(batch->input), batch->target);
      loss.backward();
      replicas.finish();  // ->
      adam.step();
      adam.zero_grad();
    }

  // All ranks have the same weights, bit for bit.
  const at::Tensor mine = net.second->weight.detach().clone(), theirs = mine.clone();
  world.broadcast(theirs, 0).wait();
  if (world.rank() == 0) std::printf("%d ranks, loss %.3f\n", world.size(), loss.item<double>());
  return mine.equal(theirs) && loss.item<double>() < 0.6 ? 0 : 1;
}
