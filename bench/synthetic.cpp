// SPDX-License-Identifier: BSD-3-Clause
#include "synthetic.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_nearest2d.h>

#include <vector>

#include "braid/train/measure.h"

namespace braid::bench {
namespace {

// 24 bits a number as fp32, 0 <= x < 1; exact on every device.
at::Tensor hashed(at::IntArrayRef sizes, int64_t sample, int64_t salt, c10::Device device) {
  constexpr int64_t mask = 0xffffffff;
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  at::Tensor x = at::arange(count, at::TensorOptions(c10::kLong).device(device));
  x.add_(sample * count).bitwise_xor_(salt * 0x9e3779b9 & mask).bitwise_and_(mask);
  for (const int64_t factor : {0x85ebca6bL, 0xc2b2ae35L, 0x27d4eb2fL})
    x.bitwise_xor_(x.bitwise_right_shift(15)).mul_(factor).bitwise_and_(mask);
  return x.bitwise_right_shift_(8).to(c10::kFloat).mul_(0x1p-24).view(sizes);
}

// Small tokens are frequent: a model has something to learn in a few steps.
void fill_tokens(data::Batch& batch, int64_t vocabulary, int64_t first) {
  const int64_t tokens = batch.input.size(1);
  for (int64_t i = 0; i < batch.samples; ++i) {
    const at::Tensor u = hashed({tokens + 1}, first + i, 1, batch.input.device()).to(c10::kDouble);
    const at::Tensor text = u.mul(u).mul_(u).mul_(static_cast<double>(vocabulary)).to(c10::kLong);
    batch.input[i].copy_(text.narrow(0, 0, tokens));
    batch.target[i].copy_(text.narrow(0, 1, tokens));
  }
}

// The next channel and noise.
void fill_fields(data::Batch& batch, int64_t first) {
  for (int64_t i = 0; i < batch.samples; ++i) {
    const auto sizes = batch.input.sizes().slice(1);
    const at::Tensor field = hashed(sizes, first + i, 1, batch.input.device()).sub_(0.5).mul_(3);
    batch.input[i].copy_(field);
    batch.target[i].copy_(
        field.roll(1, 0).mul_(0.75).add_(hashed(sizes, first + i, 2, field.device())));
  }
}

at::Tensor by_channel(const std::vector<double>& values, c10::Device device) {
  return at::tensor(values, at::TensorOptions(c10::kFloat)).view({-1, 1, 1}).to(device);
}

// A coarse image, and the same with finer noise, in physical units.
void fill_images(data::Batch& batch, const nn::SwinirOptions& model, int64_t first) {
  const c10::Device device = batch.input.device();
  const at::Tensor std = by_channel(model.std, device), mean = by_channel(model.mean, device);
  for (int64_t i = 0; i < batch.samples; ++i) {
    const at::Tensor coarse =
        hashed(batch.input.sizes().slice(1), first + i, 1, device).sub_(0.5).mul_(3);
    const at::Tensor large =
        at::upsample_nearest2d(coarse.unsqueeze(0), batch.target.sizes().slice(2))[0];
    const at::Tensor noise = hashed(large.sizes(), first + i, 2, device).sub_(0.5).mul_(0.5);
    batch.input[i].copy_(coarse.mul(std).add_(mean));
    batch.target[i].copy_(large.add(noise).mul_(std).add_(mean));
  }
}

}  // namespace

data::Batch synthetic_batch(const train::RunOptions& options, int64_t number, c10::Device device) {
  const int64_t samples = train::global_batch_of(options.train, 1);
  data::Batch batch = train::empty_batch(options, samples, device);
  batch.global_samples = samples;
  const int64_t first = number * samples;
  switch (options.model.name) {
    case nn::ModelName::gpt:
      fill_tokens(batch, options.model.gpt.vocabulary, first);
      break;
    case nn::ModelName::llama:
      fill_tokens(batch, options.model.llama.vocabulary, first);
      break;
    case nn::ModelName::swinir:
      fill_images(batch, options.model.swinir, first);
      break;
    case nn::ModelName::vit:
    case nn::ModelName::mlp:
      fill_fields(batch, first);
      break;
  }
  return batch;
}

}  // namespace braid::bench
