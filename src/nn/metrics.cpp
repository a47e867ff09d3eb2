// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/metrics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/nn/loss.h"

namespace braid::nn {
namespace {

constexpr double ssim_sigma = 1.5;

struct FieldPair {
  at::Tensor output, target;  // in one dtype: fp32, or fp64 for an output of fp64
};

FieldPair in_metric_dtype(const at::Tensor& output, const at::Tensor& target) {
  const auto dtype = output.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat;
  return {output.to(dtype), target.to(dtype)};
}

void check_fields(const at::Tensor& output, const at::Tensor& target, int64_t smallest) {
  if (output.sizes() == target.sizes() && output.dim() == 4 && output.size(2) >= smallest &&
      output.size(3) >= smallest)
    return;
  throw DataError(
      {.what = fmt::format("a metric got an output of shape {} and a target of shape {}",
                           c10::str(output.sizes()), c10::str(target.sizes())),
       .why = fmt::format(
           "both must be [batch, channel, rows, columns] of one shape, at least {} x {}", smallest,
           smallest),
       .fix = "take the metric out of the evaluation, or give it fields"});
}

at::Tensor weight_column(const at::Tensor& weights, const at::Tensor& like) {  // [H, 1]
  const at::Tensor rows = weights.defined() ? weights : latitude_weights(like.size(2));
  return rows.to(like.options()).unsqueeze(1);
}

at::Tensor image_mean(const at::Tensor& x) { return x.mean({2, 3}); }
at::Tensor image_norm(const at::Tensor& x) { return at::linalg_vector_norm(x.flatten(2), 2, {2}); }

// The maximum of each image, [B, C]; its largest magnitude where no value is above 0.
at::Tensor largest_value(const at::Tensor& x) {
  const at::Tensor most = x.amax({2, 3});
  return at::where(most.gt(0), most, x.abs().amax({2, 3}));
}

// Gaussian mean around each pixel whose window lies inside the image; one axis after the other.
at::Tensor blurred(const at::Tensor& x) {
  const at::Tensor place = at::arange(ssim_window, x.options()) - (ssim_window - 1) / 2;
  at::Tensor taps = (place.square() / (-2 * ssim_sigma * ssim_sigma)).exp();
  taps = taps / taps.sum();
  const at::Tensor flat = x.flatten(0, 1).unsqueeze(1);  // [B C, 1, H, W]
  const at::Tensor down = at::conv2d(flat, taps.view({1, 1, ssim_window, 1}));
  return at::conv2d(down, taps.view({1, 1, 1, ssim_window}))
      .squeeze(1)
      .unflatten(0, {x.size(0), x.size(1)});
}

}  // namespace

at::Tensor weighted_rmse(const at::Tensor& output, const at::Tensor& target,
                         const at::Tensor& weights) {
  check_fields(output, target, 1);
  const auto [p, t] = in_metric_dtype(output, target);
  const at::Tensor difference = p - t;
  return image_mean(difference.square() * weight_column(weights, difference)).sqrt();
}

at::Tensor weighted_cosine(const at::Tensor& output, const at::Tensor& target,
                           const at::Tensor& weights) {
  check_fields(output, target, 1);
  const auto [p, t] = in_metric_dtype(output, target);
  const at::Tensor w = weight_column(weights, p);
  const at::Tensor scale = (image_mean(w * p * p) * image_mean(w * t * t)).sqrt();
  return image_mean(w * p * t) / scale;
}

at::Tensor psnr(const at::Tensor& output, const at::Tensor& target, std::optional<double> range) {
  check_fields(output, target, 1);
  const auto [p, t] = in_metric_dtype(output, target);
  const at::Tensor rmse = image_mean((p - t).square()).sqrt();
  if (range && *range > 0) return (*range / rmse).log10() * 20;
  return ((range ? largest_value(t) : t.amax({2, 3}) - t.amin({2, 3})) / rmse).log10() * 20;
}

at::Tensor ssim(const at::Tensor& output, const at::Tensor& target) {
  check_fields(output, target, ssim_window);
  const auto [p, t] = in_metric_dtype(output, target);
  const at::Tensor range = (t.amax({2, 3}, true) - t.amin({2, 3}, true));  // [B, C, 1, 1]
  const at::Tensor c1 = (range * 0.01).square(), c2 = (range * 0.03).square();
  const at::Tensor mp = blurred(p), mt = blurred(t);
  const at::Tensor vp = blurred(p * p) - mp * mp, vt = blurred(t * t) - mt * mt;
  const at::Tensor both = blurred(p * t) - mp * mt;
  const at::Tensor likeness = (2 * mp * mt + c1) * (2 * both + c2);
  return image_mean(likeness / ((mp * mp + mt * mt + c1) * (vp + vt + c2)));
}

at::Tensor rfne(const at::Tensor& output, const at::Tensor& target) {
  check_fields(output, target, 1);
  const auto [p, t] = in_metric_dtype(output, target);
  return image_norm(t - p) / image_norm(t);
}

at::Tensor hits(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor counted = target.ne(ignored_target);
  const at::Tensor right = output.argmax(-1).eq(target).logical_and_(counted);
  if (target.dim() == 1) return right.to(c10::kFloat);
  return right.flatten(1).sum(1) / counted.flatten(1).sum(1).clamp_min(1);
}

}  // namespace braid::nn
