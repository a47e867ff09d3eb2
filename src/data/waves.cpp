// SPDX-License-Identifier: BSD-3-Clause
#include "data/waves.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace braid::data {

WaveField::WaveField(const WaveOptions& options, RandomKey key) : options_(options), key_(key) {
  double power = 0;
  for (int64_t k = 0; k <= options.zonal; ++k) {
    for (int64_t l = 0; l < options.meridional; ++l) {
      const auto kk = static_cast<double>(k), ll = static_cast<double>(l);
      const double number = std::max(1.0, std::hypot(kk, ll));
      const double zonal_mean = k == 0 ? 0.3 : 1.0;  // the part that does not travel is kept small
      spread_.push_back(zonal_mean * std::pow(number, -options.slope));
      // Mean square over the grid: the two draws of a mode make 1 along a circle of latitude, the
      // profile 1/2 across.
      power += spread_.back() * spread_.back() * (l == 0 ? 1.0 : 0.5);
      const double dispersion = k == 0 ? 0 : 0.1 * kk / (kk * kk + ll * ll);
      turn_.push_back(std::polar(1.0, dispersion - 2 * std::numbers::pi * kk * options.flow));
    }
  }
  for (double& spread : spread_) spread /= std::sqrt(power);
  amplitudes_.resize(spread_.size());
  for (size_t mode = 0; mode < spread_.size(); ++mode) {
    state_.push_back(draw(mode));
    amplitudes_[mode] = std::complex<float>(state_[mode]);
  }
}

std::complex<double> WaveField::draw(size_t mode) {
  const double real = random_normal(key_, drawn_++), imaginary = random_normal(key_, drawn_++);
  return spread_[mode] * std::complex(real, imaginary);
}

void WaveField::advance() {
  const double keep = options_.memory, fresh = std::sqrt(1 - keep * keep);
  for (size_t mode = 0; mode < state_.size(); ++mode) {
    state_[mode] = keep * turn_[mode] * state_[mode] + fresh * draw(mode);
    amplitudes_[mode] = std::complex<float>(state_[mode]);
  }
}

WaveGrid::WaveGrid(const WaveOptions& options, int64_t height, int64_t width)
    : zonal_(options.zonal), meridional_(options.meridional), height_(height), width_(width) {
  const double pi = std::numbers::pi;
  for (int64_t k = 0; k <= zonal_; ++k) {
    for (int64_t x = 0; x < width; ++x) {
      const double angle = 2 * pi * static_cast<double>(k * x % width) / static_cast<double>(width);
      cosine_.push_back(static_cast<float>(std::cos(angle)));
      sine_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  for (int64_t l = 0; l < meridional_; ++l)
    for (int64_t y = 0; y < height; ++y)
      profile_.push_back(
          static_cast<float>(std::cos(pi * static_cast<double>(l) * (static_cast<double>(y) + 0.5) /
                                      static_cast<double>(height))));
}

void WaveGrid::draw(const std::complex<float>* amplitudes, float mean, float std,
                    float* out) const {
  for (int64_t y = 0; y < height_; ++y) {
    float* row = out + y * width_;
    std::fill_n(row, width_, mean);
    for (int64_t k = 0; k <= zonal_; ++k) {
      std::complex<float> sum = 0;
      for (int64_t l = 0; l < meridional_; ++l)
        sum += amplitudes[k * meridional_ + l] * profile_[static_cast<size_t>(l * height_ + y)];
      sum *= std;
      const float *c = cosine_.data() + k * width_, *s = sine_.data() + k * width_;
      const float real = sum.real(), imaginary = sum.imag();
      for (int64_t x = 0; x < width_; ++x) row[x] += real * c[x] - imaginary * s[x];
    }
  }
}

}  // namespace braid::data
