// SPDX-License-Identifier: BSD-3-Clause
// Metrics, a value a sample and channel, as tensors without host reads; the evaluator means them.
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::nn {

at::Tensor latitude_weights(int64_t rows);  // [H], mean 1; row 0 is 90 north
at::Tensor weighted_rmse(const at::Tensor& output,
                         const at::Tensor& target);  // [B, C], latitude-weighted
at::Tensor weighted_acc(const at::Tensor& output,
                        const at::Tensor& target);  // [B, C], anomaly correlation
at::Tensor psnr(const at::Tensor& output,
                const at::Tensor& target);  // [B, C], 20 log10(max(t)/rmse)
at::Tensor ssim(const at::Tensor& output,
                const at::Tensor& target);  // [B, C], 11x11 Gaussian window, sigma 1.5
at::Tensor rfne(const at::Tensor& output, const at::Tensor& target);  // [B, C], ||t-p|| / ||t||
at::Tensor hits(const at::Tensor& output, const at::Tensor& target);  // [B], share of right labels

}  // namespace braid::nn
