// SPDX-License-Identifier: BSD-3-Clause
// Normal values in fp64 that depend on the seed and the name of the test's stream alone.
#pragma once
#include <cstdint>
#include <string_view>

#include <ATen/ops/zeros.h>

#include "braid/core/rng.h"

namespace braid::test {

inline at::Tensor drawn(at::IntArrayRef sizes, uint64_t seed, std::string_view stream) {
  const at::Tensor x = at::zeros(sizes, at::kDouble);
  fill_normal(x, random_key(seed, stream));
  return x;
}

}  // namespace braid::test
