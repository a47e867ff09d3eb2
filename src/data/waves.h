// SPDX-License-Identifier: BSD-3-Clause
// Random waves on a sphere-like grid (periodic in longitude) that travel and slowly change: made-up
// weather. Internal.
//
// A latent field is a sum of modes cos(pi l y) exp(2 pi i k x). From frame to frame each mode turns
// by an angle of its own, a constant zonal flow plus Rossby-like dispersion, and its amplitude
// follows an autoregression of order one. So frame t+1 is one fixed linear map of frame t, plus a
// little noise: there is something to learn, and something that cannot be learnt.
#pragma once
#include <complex>
#include <cstdint>
#include <vector>

#include "braid/core/rng.h"

namespace braid::data {

struct WaveOptions {
  int64_t zonal = 6, meridional = 6;  // wave numbers 0..zonal and 0..meridional-1
  double slope = 1.5;                 // amplitude falls as wave number^-slope
  double flow = 1.0 / 24;             // of the circumference a frame
  double memory = 0.99;  // autocorrelation of an amplitude over one frame, apart from its turning
};

// The amplitudes of one latent field of unit variance, and the step to the next frame.
class WaveField {
 public:
  WaveField(const WaveOptions& options, RandomKey key);
  void advance();
  const std::vector<std::complex<float>>& amplitudes() const {
    return amplitudes_;
  }  // [zonal+1, meridional]

 private:
  std::complex<double> draw(size_t mode);

  WaveOptions options_;
  RandomKey key_;
  uint64_t drawn_ = 0;
  std::vector<double> spread_;  // standard deviation a mode
  std::vector<std::complex<double>> turn_, state_;
  std::vector<std::complex<float>> amplitudes_;
};

// Adds up modes on a grid.
class WaveGrid {
 public:
  WaveGrid(const WaveOptions& options, int64_t height, int64_t width);
  void draw(const std::complex<float>* amplitudes, float mean, float std,
            float* out) const;  // [height, width]

 private:
  int64_t zonal_, meridional_, height_, width_;
  std::vector<float> cosine_, sine_;  // [zonal+1, width]
  std::vector<float> profile_;        // [meridional, height]
};

}  // namespace braid::data
