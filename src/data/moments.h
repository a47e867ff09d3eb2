// SPDX-License-Identifier: BSD-3-Clause
// Mean, spread and range of numbers that come in parts. Internal.
#pragma once
#include <cstdint>
#include <limits>

namespace braid::data {

struct Moments {
  int64_t count = 0;    // of finite numbers
  int64_t missing = 0;  // of others
  double mean = 0;
  double squares = 0;  // sum of the squared distances from the mean
  float least = std::numeric_limits<float>::infinity();
  float most = -std::numeric_limits<float>::infinity();

  void add(const Moments& others);
  double std() const;
};

Moments moments_of(const float* values, int64_t count);

}  // namespace braid::data
