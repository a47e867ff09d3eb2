// SPDX-License-Identifier: BSD-3-Clause
// The program of docs/zero.md: a LibTorch module, its own optimizer loop, one line a block.
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "braid/parallel/zero.h"
#include "parallel/zero_toy.h"
#include "support/ranks.h"

namespace braid {
namespace {

struct ZeroLayerImpl : torch::nn::Module {
  explicit ZeroLayerImpl(int64_t width)
      : norm(register_module("norm", torch::nn::LayerNorm(std::vector<int64_t>{width}))),
        up(register_module("up", torch::nn::Linear(width, 3 * width))),
        down(register_module("down", torch::nn::Linear(3 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) { return x.add(down(up(norm(x)).tanh())); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
};
TORCH_MODULE(ZeroLayer);

struct ZeroNet : torch::nn::Module {
  explicit ZeroNet(int64_t width) : in(6, width), out(width, 1) {
    register_module("in", in);
    for (int i = 0; i < 3; ++i)
      layers.push_back(register_module("layers" + std::to_string(i), ZeroLayer(width)));
    register_module("out", out);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input, BlockRunner* blocks) {
    return run_block(blocks, "", input, [&](const at::Tensor& x) {
      at::Tensor y = in(x);
      for (size_t i = 0; i < layers.size(); ++i)
        y = run_block(blocks, "layers" + std::to_string(i), y,
                      [&](const at::Tensor& z) { return layers[i]->forward(z); });
      return out(y);
    });
  }
  torch::nn::Linear in, out;
  std::vector<ZeroLayer> layers;
};

std::unique_ptr<ZeroNet> made_net() {
  auto net = std::make_unique<ZeroNet>(7);
  const at::NoGradGuard no_grad;
  for (const Param& param : named_params(*net)) test::toy_initial(param.name, param.tensor, 0);
  return net;
}

TEST(ZeroModule, TrainsAsOneProcess) {
  const at::Tensor x = test::toy_values({12, 6}, "x"), y = test::toy_values({12, 1}, "y");
  const auto alone = made_net();
  for (int step = 0; step < 3; ++step) {
    alone->zero_grad();
    at::mse_loss(alone->forward(x, nullptr), y).backward();
    const at::NoGradGuard no_grad;
    test::toy_sgd(named_params(*alone), 0.1);
  }
  std::map<std::string, at::Tensor> wanted;
  for (const Param& param : named_params(*alone)) wanted[param.name] = param.tensor;
  // Made here: torch's layers draw from the generator that all threads share.
  std::vector<std::unique_ptr<ZeroNet>> nets;
  for (int i = 0; i < 9; ++i) nets.push_back(made_net());
  test::on_ranks(3, [&](comm::Group world) {
    const auto rank = static_cast<size_t>(world.rank());
    for (int stage = 1; stage <= 3; ++stage) {
      ZeroNet& net = *nets[3 * rank + static_cast<size_t>(stage) - 1];
      const std::vector<Param> params = named_params(net);
      parallel::Zero zero(parallel::units_of(params, {"layers0", "layers1", "layers2"}), world, {},
                          {.stage = stage});
      for (int step = 0; step < 3; ++step) {
        at::mse_loss(net.forward(x.chunk(3)[rank], &zero), y.chunk(3)[rank]).backward();
        zero.finish();
        const at::NoGradGuard no_grad;
        test::toy_sgd(zero.params(), 0.1);
        zero.publish();
      }
      for (const Param& piece : zero.params())
        EXPECT_TRUE(piece.tensor.reshape({-1}).allclose(
            test::toy_piece(wanted.at(piece.name), piece), 1e-12, 1e-13))
            << piece.name << ", stage " << stage;
    }
  });
}

}  // namespace
}  // namespace braid
