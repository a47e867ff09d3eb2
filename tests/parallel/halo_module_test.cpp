// SPDX-License-Identifier: BSD-3-Clause
// The program of docs/spatial.md: a LibTorch module whose images are spread over ranks in bands.
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/options/conv.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "braid/core/rng.h"
#include "braid/parallel/halo.h"
#include "braid/parallel/replicate.h"
#include "support/drawn.h"
#include "support/ranks.h"

namespace braid {
namespace {

struct Denoiser : torch::nn::Module {
  Denoiser()
      : first(torch::nn::Conv2dOptions(2, 6, 3).padding(1)),
        last(torch::nn::Conv2dOptions(6, 2, 5).padding(2)) {
    register_module("first", first);
    register_module("last", last);
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (const Param& param : named_params(*this))
      fill_normal(param.tensor, random_key(1, param.name), {.std = 0.2});
  }
  // x: this rank's rows of the image.
  at::Tensor forward(const at::Tensor& x, const comm::Group& ranks) {
    at::Tensor y = parallel::band_conv2d(x, first->weight, first->bias, ranks);
    // The largest of three rows: any operator that looks one row far works on a band with a halo.
    y = at::max_pool2d(parallel::with_halo(y.relu(), ranks, /*halo=*/1, /*dim=*/2), {3, 1}, 1);
    return parallel::band_conv2d(at::gelu(y), last->weight, last->bias, ranks);
  }
  torch::nn::Conv2d first, last;
};

void update(const std::vector<Param>& params) {
  const at::NoGradGuard no_grad;
  for (const Param& param : params) {
    param.tensor.sub_(param.tensor.grad(), 0.1);
    param.tensor.grad().zero_();
  }
}

TEST(HaloModule, TrainsAsOneProcess) {
  const at::Tensor image = test::drawn({2, 2, 13, 8}, 1, "image");
  const at::Tensor target = test::drawn({2, 2, 13, 8}, 1, "target");
  Denoiser alone;
  for (int step = 0; step < 3; ++step) {
    at::mse_loss(alone.forward(image, {}), target).backward();
    update(named_params(alone));
  }
  // Made here: torch's layers draw from the generator that all threads share.
  std::vector<std::unique_ptr<Denoiser>> nets;
  for (int i = 0; i < 3; ++i) nets.push_back(std::make_unique<Denoiser>());
  test::on_ranks(3, [&](const comm::Group& world) {
    Denoiser& net = *nets[static_cast<size_t>(world.rank())];
    const parallel::RowBands bands = parallel::share_rows(image.size(2), world);
    parallel::Replicate sums(named_params(net), world, {.average = false});
    for (int step = 0; step < 3; ++step) {
      const at::Tensor y = net.forward(parallel::take_rows(image, bands, 2), world);
      // The mean over the whole image: each rank adds its rows.
      const at::Tensor loss =
          y.sub(parallel::take_rows(target, bands, 2)).square().sum().div(target.numel());
      loss.backward();
      sums.finish();
      update(named_params(net));
    }
    const auto wanted = named_params(alone), got = named_params(net);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(got[i].tensor.allclose(wanted[i].tensor, 1e-12, 1e-13)) << got[i].name;
    const at::Tensor whole = parallel::join_rows(
        net.forward(parallel::take_rows(image, bands, 2), world), bands, world, 2);
    EXPECT_TRUE(whole.allclose(alone.forward(image, {}), 1e-12, 1e-12));
  });
}

}  // namespace
}  // namespace braid
