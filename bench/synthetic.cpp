// SPDX-License-Identifier: BSD-3-Clause
#include "synthetic.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/where.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <vector>

#include "braid/train/measure.h"

namespace braid::bench {
namespace {

constexpr int64_t mask = 0xffffffff;
constexpr int64_t factors[] = {0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f};

at::Tensor upto(int64_t count, c10::Device device) {
  return at::arange(count, at::TensorOptions(c10::kLong).device(device));
}

// A round of mixing of numbers of 32 bits.
void mix(const at::Tensor& x, int64_t factor) {
  x.bitwise_xor_(x.bitwise_right_shift(15)).mul_(factor).bitwise_and_(mask);
}

// Which numbers: those of `count` samples, a stream of their own for each salt.
struct Draw {
  int64_t first, count, salt;
  c10::Device device;
};

// [count, ...sizes], 24 bits a number as fp32, 0 <= x < 1; exact on every device.
at::Tensor hashed(const Draw& draw, at::IntArrayRef sizes) {
  const at::Tensor key = upto(draw.count, draw.device);
  key.add_(draw.first).bitwise_xor_(draw.salt * 0x9e3779b9 & mask).bitwise_and_(mask);
  for (const int64_t factor : factors) mix(key, factor);
  const at::Tensor place = upto(c10::multiply_integers(sizes), draw.device);
  mix(place, factors[0]);
  const at::Tensor x = place.unsqueeze(0).bitwise_xor(key.unsqueeze(1));
  mix(x, factors[1]);
  mix(x, factors[2]);
  std::vector<int64_t> whole = {draw.count};
  whole.insert(whole.end(), sizes.begin(), sizes.end());
  return x.bitwise_right_shift_(8).to(c10::kFloat).mul_(0x1p-24).view(whole);
}

at::Tensor whole_numbers(const at::Tensor& u, int64_t below) {
  return u.to(c10::kDouble).mul_(static_cast<double>(below)).to(c10::kLong);
}

// Text of few words, 16 at a time: half of the words follow from the word before, a quarter from
// the one before that, the others are drawn, small ones more often.
void fill_tokens(data::Batch& batch, int64_t vocabulary, int64_t first) {
  constexpr int64_t run = 16;
  const c10::Device device = batch.input.device();
  const int64_t tokens = batch.input.size(1), words = std::min<int64_t>(vocabulary, 1024);
  const int64_t runs = (tokens + run) / run;
  const auto numbers = [&](int64_t salt) {
    return hashed({first, batch.samples, salt, device}, {runs, run});
  };
  const auto follower = [&](int64_t salt) {
    return whole_numbers(hashed({0, 1, salt, device}, {words}), words).view({-1});
  };
  const at::Tensor u = numbers(1), rule = numbers(2);
  const at::Tensor drawn = whole_numbers(u.to(c10::kDouble).mul(u), words);
  const at::Tensor after_one = follower(3), after_two = follower(4);
  std::vector<at::Tensor> text = {drawn.select(2, 0), drawn.select(2, 1)};
  for (int64_t i = 2; i < run; ++i) {
    const at::Tensor r = rule.select(2, i);
    const at::Tensor ruled =
        at::where(r.lt(0.5), after_one.take(text[i - 1]), after_two.take(text[i - 2]));
    text.push_back(at::where(r.lt(0.75), ruled, drawn.select(2, i)));
  }
  const at::Tensor whole = at::stack(text, 2).view({batch.samples, -1}).mul_(vocabulary / words);
  batch.input.copy_(whole.narrow(1, 0, tokens));
  batch.target.copy_(whole.narrow(1, 1, tokens));
}

// [count, channels, rows, columns] between -1.5 and 1.5, with a new value every `step` points.
at::Tensor waves(const Draw& draw, at::IntArrayRef sizes, int64_t step) {
  const auto coarse = [&](int64_t size) { return std::max<int64_t>(2, size / step); };
  const at::Tensor u = hashed(draw, {sizes[0], coarse(sizes[1]), coarse(sizes[2])});
  return at::upsample_bilinear2d(u.sub_(0.5).mul_(3), sizes.slice(1), /*align_corners=*/false);
}

// Smooth fields; wanted is where the wind carries them, with some of the next field and noise.
void fill_fields(data::Batch& batch, int64_t first) {
  const auto sizes = batch.input.sizes().slice(1);
  for (int64_t i = 0; i < batch.samples; ++i) {
    const Draw draw = {first + i, 1, 1, batch.input.device()};
    const bool flat = sizes.size() < 3;
    const at::Tensor field = flat ? hashed(draw, sizes).sub_(0.5).mul_(3) : waves(draw, sizes, 24);
    const at::Tensor carried = flat ? field : field.roll({3, 5}, {2, 3});
    const at::Tensor noise = hashed({first + i, 1, 2, draw.device}, sizes).sub_(0.5).mul_(0.2);
    batch.input[i].copy_(field[0]);
    batch.target[i].copy_(carried.mul(0.75).add_(field.roll(1, 1).mul_(0.5)).add_(noise)[0]);
  }
}

at::Tensor by_channel(const std::vector<double>& values, c10::Device device) {
  return at::tensor(values, at::TensorOptions(c10::kFloat)).view({-1, 1, 1}).to(device);
}

// Images of coarse and fine waves in physical units, and their means over `scale` points.
void fill_images(data::Batch& batch, const nn::SwinirOptions& model, int64_t first) {
  const c10::Device device = batch.input.device();
  const auto sizes = batch.target.sizes().slice(1);
  const at::Tensor std = by_channel(model.std, device), mean = by_channel(model.mean, device);
  const int64_t count = batch.samples;
  const at::Tensor image = waves({first, count, 1, device}, sizes, 16);
  image.add_(waves({first, count, 2, device}, sizes, 4).mul_(0.3));
  image.add_(hashed({first, count, 3, device}, sizes).sub_(0.5).mul_(0.1));
  image.mul_(std).add_(mean);
  batch.target.copy_(image);
  batch.input.copy_(at::avg_pool2d(image, {model.scale, model.scale}));
}

}  // namespace

void fill_batch(data::Batch& batch, const train::RunOptions& options, int64_t number) {
  const int64_t first = number * batch.samples;
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
    case nn::ModelName::own:
      fill_fields(batch, first);
      break;
  }
}

data::Batch synthetic_batch(const train::RunOptions& options, int64_t number, c10::Device device) {
  const int64_t samples = train::global_batch_of(options.train, 1);
  data::Batch batch = train::empty_batch(options, samples, device);
  batch.global_samples = samples;
  fill_batch(batch, options, number);
  return batch;
}

}  // namespace braid::bench
