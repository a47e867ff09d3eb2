// SPDX-License-Identifier: BSD-3-Clause
// Metrics: one value per sample and channel, as tensors without host reads. The evaluator averages
// them.
//
//   at::Tensor area = nn::row_weights(nn::Area::cells, info.latitudes);
//   at::Tensor rmse = nn::weighted_rmse(output, target, area);   // [B, C]
#pragma once
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::nn {

// How the rows of a grid are weighted. cells: the areas of the grid cells on the sphere, as in
// WeatherBench 2. cos: the cosine of the latitude. reference: latitude_weights(rows).
enum class Area { automatic, cells, cos, reference };  // automatic: cells

// [H] in double, mean 1. Latitudes in degrees north, rising or falling, of any part of the globe.
// The bounds of a cell lie half way between two rows, and none lies beyond a pole. Throws
// DataError.
at::Tensor row_weights(Area kind, const std::vector<double>& latitudes);
// [H] in double, mean 1: those of the NERSC course, for rows from 90 to -90 with both poles.
at::Tensor latitude_weights(int64_t rows);

// Root of the weighted mean square error, [B, C]. `weights` are those of the rows; undefined:
// latitude_weights.
at::Tensor weighted_rmse(const at::Tensor& output, const at::Tensor& target,
                         const at::Tensor& weights = {});
// Weighted cosine of the angle between output and target, [B, C]: the anomaly correlation (ACC) if
// both are differences from a climatology.
at::Tensor weighted_cosine(const at::Tensor& output, const at::Tensor& target,
                           const at::Tensor& weights = {});
// [B, C], 20 log10(range / rmse). Without a range: max - min of each target. A range of 0 stands
// for the maximum of each target, as the NREL tutorial has it (its largest magnitude where no value
// is above 0).
at::Tensor psnr(const at::Tensor& output, const at::Tensor& target,
                std::optional<double> range = {});
inline constexpr int64_t ssim_window = 11;  // the smallest side that ssim takes
// [B, C], Gaussian window of 11 x 11 with sigma 1.5, range: max - min of each target.
at::Tensor ssim(const at::Tensor& output, const at::Tensor& target);
at::Tensor rfne(const at::Tensor& output, const at::Tensor& target);  // [B, C], ||t-p|| / ||t||
at::Tensor hits(const at::Tensor& output, const at::Tensor& target);  // [B], share of right labels

}  // namespace braid::nn
