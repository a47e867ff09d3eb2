// SPDX-License-Identifier: BSD-3-Clause
#include "swinir_tail.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/pixel_shuffle.h>
#include <ATen/ops/upsample_nearest2d.h>

#include "braid/kernels/masks.h"
#include "swinir_bands.h"

namespace braid::nn {
namespace {

constexpr double torch_slope = 0.01, up_slope = 0.2;

// Powers of two go up in steps of two, three in one.
std::vector<int64_t> shuffle_factors(int64_t scale) {
  if (scale == 3) return {3};
  std::vector<int64_t> factors;
  for (; scale > 1; scale /= 2) factors.push_back(2);
  return factors;
}

}  // namespace

SwinTail::SwinTail(Layer& model, const SwinirOptions& options)
    : packed_(model.scope().build.pack_masks),
      in_place_(model.scope().build.kernels == Kernels::reference) {
  switch (options.upsampler) {
    case Upsampler::pixelshuffle:
      pixel_shuffle(model, options);
      break;
    case Upsampler::pixelshuffledirect: {
      const int64_t out = options.channels * options.scale * options.scale;
      const auto list = model.child<Layer>("upsample");
      steps_ = {
          {.conv = list->child<Conv2d>("0", options.width, out), .shuffle_after = options.scale}};
      break;
    }
    case Upsampler::nearest_conv:
      nearest(model, options);
      break;
    case Upsampler::none:
      steps_ = {{.conv = model.child<Conv2d>("conv_last", options.width, options.channels)}};
      add_input_ = true;
  }
}

void SwinTail::pixel_shuffle(Layer& model, const SwinirOptions& options) {
  const int64_t features = options.features;
  const auto before = model.child<Layer>("conv_before_upsample");
  steps_ = {
      {.conv = before->child<Conv2d>("0", options.width, features), .slope_after = torch_slope}};
  const auto list = model.child<Layer>("upsample");
  int64_t number = 0;
  for (int64_t factor : shuffle_factors(options.scale)) {
    const auto conv =
        list->child<Conv2d>(std::to_string(number), features, features * factor * factor);
    steps_.push_back({.conv = conv, .shuffle_after = factor});
    number += 2;  // the shuffle stands between
  }
  steps_.push_back({.conv = model.child<Conv2d>("conv_last", features, options.channels)});
}

void SwinTail::nearest(Layer& model, const SwinirOptions& options) {
  const int64_t features = options.features;
  const auto before = model.child<Layer>("conv_before_upsample");
  steps_ = {
      {.conv = before->child<Conv2d>("0", options.width, features), .slope_after = torch_slope}};
  for (int64_t i = 1; i <= (options.scale == 4 ? 2 : 1); ++i) {
    const auto conv = model.child<Conv2d>("conv_up" + std::to_string(i), features, features);
    steps_.push_back({.conv = conv, .enlarge_before = 2, .slope_after = up_slope});
  }
  steps_.push_back(
      {.conv = model.child<Conv2d>("conv_hr", features, features), .slope_after = up_slope});
  steps_.push_back({.conv = model.child<Conv2d>("conv_last", features, options.channels)});
}

at::Tensor SwinTail::forward(const at::Tensor& features, const at::Tensor& input) const {
  at::Tensor x = features;
  for (const Step& step : steps_) {
    if (step.enlarge_before > 1)
      x = at::upsample_nearest2d(
          x, {x.size(2) * step.enlarge_before, x.size(3) * step.enlarge_before});
    x = conv_on_band(*step.conv, x, {.in = true});
    if (step.slope_after < 1 && in_place_)
      at::leaky_relu_(x, step.slope_after);
    else if (step.slope_after < 1)
      x = kernels::leaky_relu(x, step.slope_after, packed_);
    if (step.shuffle_after > 1) x = at::pixel_shuffle(x, step.shuffle_after);
  }
  return add_input_ ? input + x : x;
}

void SwinTail::rows(std::vector<LayerRow>& table, int64_t rows, int64_t columns) const {
  for (const Step& step : steps_) {
    rows *= step.enlarge_before;
    columns *= step.enlarge_before;
    table.push_back(step.conv->row(rows, columns));
    rows *= step.shuffle_after;
    columns *= step.shuffle_after;
  }
}

}  // namespace braid::nn
