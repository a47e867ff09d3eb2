// SPDX-License-Identifier: BSD-3-Clause
// Weights of the rows of a grid.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "braid/core/error.h"
#include "braid/nn/metrics.h"

namespace braid::nn {
namespace {

constexpr double radians_per_degree = std::numbers::pi / 180;
constexpr double pole = 90;

void check_latitudes(const std::vector<double>& latitudes) {
  for (size_t row = 0; row < latitudes.size(); ++row)
    if (!(std::abs(latitudes[row]) <= pole + 1e-4))
      throw DataError(
          {.what = fmt::format("row {} of the grid has the latitude {}", row, latitudes[row]),
           .why = "latitudes are degrees north, from -90 to 90; they weight the metrics",
           .fix = "correct the coordinate in the files, or --set train.area=reference"});
}

void check_order(const std::vector<double>& latitudes) {
  const bool rising = latitudes.front() < latitudes.back();
  for (size_t row = 1; row < latitudes.size(); ++row)
    if (latitudes[row] == latitudes[row - 1] || (latitudes[row - 1] < latitudes[row]) != rising)
      throw DataError(
          {.what = fmt::format("the latitudes neither rise nor fall: row {} is at {}, row {} at {}",
                               row - 1, latitudes[row - 1], row, latitudes[row]),
           .why = "the area of a grid cell ends half way to the next row",
           .fix = "sort the rows of the files, or --set train.area=cos"});
}

// Where the cell of the outermost row ends: half a spacing outside, or at the pole if there is no
// room for another row between.
double outer_bound(double row, double neighbour) {
  const double spacing = row - neighbour, side = spacing > 0 ? 1 : -1;
  const double next = side * row + std::abs(spacing);
  return next > pole + 1e-3 * std::abs(spacing) ? side * pole : row + spacing / 2;
}

std::vector<double> cell_areas(const std::vector<double>& latitudes) {
  check_order(latitudes);
  const size_t rows = latitudes.size();
  std::vector<double> bounds = {outer_bound(latitudes[0], latitudes[1])};
  for (size_t row = 1; row < rows; ++row)
    bounds.push_back((latitudes[row - 1] + latitudes[row]) / 2);
  bounds.push_back(outer_bound(latitudes[rows - 1], latitudes[rows - 2]));
  std::vector<double> areas;
  for (size_t row = 0; row < rows; ++row)
    areas.push_back(std::abs(std::sin(bounds[row + 1] * radians_per_degree) -
                             std::sin(bounds[row] * radians_per_degree)));
  return areas;
}

std::vector<double> cosines(const std::vector<double>& latitudes) {
  std::vector<double> areas;
  for (const double latitude : latitudes)
    areas.push_back(std::cos(std::clamp(latitude, -pole, pole) * radians_per_degree));
  return areas;
}

}  // namespace

at::Tensor row_weights(Area kind, const std::vector<double>& latitudes) {
  const auto rows = static_cast<int64_t>(latitudes.size());
  if (kind == Area::reference || rows < 2) return latitude_weights(rows);
  check_latitudes(latitudes);
  const std::vector<double> areas = kind == Area::cos ? cosines(latitudes) : cell_areas(latitudes);
  const at::Tensor weights = at::empty({rows}, at::TensorOptions(c10::kDouble));
  std::copy(areas.begin(), areas.end(), weights.mutable_data_ptr<double>());
  return weights / weights.mean();
}

at::Tensor latitude_weights(int64_t rows) {
  constexpr double degree =
      3.1416 / 180;  // the rounded pi of the reference, so that figures compare
  if (rows < 2) return at::arange(rows, at::TensorOptions(c10::kDouble)) + 1;
  const at::Tensor place = at::arange(rows, at::TensorOptions(c10::kDouble));
  const at::Tensor weights =
      ((90 - place * (180.0 / static_cast<double>(rows - 1))) * degree).cos();
  return weights * static_cast<double>(rows) / weights.sum();
}

}  // namespace braid::nn
