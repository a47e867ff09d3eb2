// SPDX-License-Identifier: BSD-3-Clause
// Window attention on the GPU: the kernels for tensor cores and the plain ones behind one operator.
//
//   if (has_fast_windows(places, dtype)) attend_fast(places, qkv, table, out);
#pragma once
#include <ATen/core/Tensor.h>

#include "kernels/window_places.h"

namespace braid::cuda {

// 16 bits, windows of 8 x 8, heads of an even number up to 64.
inline bool has_fast_windows(const kernels::WindowPlaces& places, c10::ScalarType dtype) {
  return c10::elementSize(dtype) == 2 && places.window == 8 && places.head % 2 == 0 &&
         places.head <= 64;
}

// Those of one warp a head: heads of 32.
inline bool has_warp_windows(const kernels::WindowPlaces& places) {
  return places.head == 32 && places.scale > 0;
}

struct WindowTensors {
  const at::Tensor &qkv, &table;
  at::Tensor grad = {};     // of the result
  at::Tensor out = {};      // the result, or the gradient of qkv
  at::Tensor partial = {};  // [parts, heads, entries]: gradients of the table
  at::Tensor value = {};    // undefined, or the result, beside the gradients
};

void attend_plain(const kernels::WindowPlaces& places, const WindowTensors& tensors);  // also back
void attend_fast(const kernels::WindowPlaces& places, const WindowTensors& tensors);
void attend_fast_grad(const kernels::WindowPlaces& places, const WindowTensors& tensors);
void attend_by_warps(const kernels::WindowPlaces& places, const WindowTensors& tensors);
void attend_by_warps_grad(const kernels::WindowPlaces& places, const WindowTensors& tensors);

}  // namespace braid::cuda
