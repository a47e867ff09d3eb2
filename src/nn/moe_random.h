// SPDX-License-Identifier: BSD-3-Clause
// Random tensors of a router: element i depends on (key, index[i]) alone, on any device.
//
//   at::Tensor noise = normal_at(places, random_key(seed, path).with(step));
#pragma once
#include <ATen/core/Tensor.h>

#include "braid/core/rng.h"

namespace braid::nn {

// index: int64. 31 random bits each, fp64.
at::Tensor uniform_at(const at::Tensor& index, RandomKey key);  // [0, 1)
at::Tensor normal_at(const at::Tensor& index, RandomKey key);   // mean 0, standard deviation 1

}  // namespace braid::nn
