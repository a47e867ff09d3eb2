// SPDX-License-Identifier: BSD-3-Clause
// An existing LibTorch module and loop that takes only the loader, the optimizer and the checkpoint
// from braid.
#include <braid/braid.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

struct Net : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 64));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(64, 2));
  at::Tensor forward(const at::Tensor& x) { return second(first(x).tanh()); }
};

int main() {
  Net net;
  auto spiral = braid::data::open_source({.kind = braid::data::Kind::spiral, .points = 2000},
                                         braid::data::Split::train, 1);
  braid::data::Loader loader(spiral, {.global_batch = 32, .seed = 1});
  braid::optim::Optimizer adam(braid::named_params(net),
                               {.name = braid::optim::Algorithm::adam, .lr = 1e-2});
  braid::checkpoint::Store store("checkpoints", {.keep = 1});

  double loss_value = 0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    while (auto batch = loader.next()) {
      at::Tensor loss =
          torch::nn::functional::cross_entropy(net.forward(batch->input), batch->target);
      loss.backward();
      adam.step();
      adam.zero_grad();
      loss_value = loss.item<double>();
    }
    braid::State state;
    for (const braid::Param& param : braid::named_params(net))
      state.tensors["model/" + param.name] = param.tensor.detach();
    for (const braid::Param& buffer : braid::named_buffers(net))
      state.tensors["model/" + buffer.name] = buffer.tensor;
    state.put("optimizer", adam.state());
    state.put("loader", loader.state());
    store.save({.step = epoch + 1, .state = state, .metrics = {{"loss", loss_value}}});
    std::printf("epoch %d loss %.4f\n", epoch, loss_value);
  }
  return store.newest()->snapshot.step == 5 ? 0 : 1;
}
