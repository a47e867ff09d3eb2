// SPDX-License-Identifier: BSD-3-Clause
// The dropout mask of kernels/dropout.h on the GPU; its CPU twin is keep_mask_cpu, bit for bit.
#include <algorithm>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "braid/core/mix.h"
#include "cuda/launch.cuh"
#include "kernels/drop_window.h"

namespace braid::cuda {
namespace {

// RandomKey::with of a step that lies on the device; null: the key as it is.
__device__ uint64_t step_key(uint64_t key, const int64_t* step) {
  return step == nullptr ? key : mix(key ^ mix(static_cast<uint64_t>(*step) + 1));
}

const int64_t* place_of(const std::optional<at::Tensor>& step) {
  return step ? step->const_data_ptr<int64_t>() : nullptr;
}

__global__ void keep_mask_kernel(bool* out, int64_t count, uint64_t limit, uint64_t base,
                                 uint64_t first, const int64_t* step) {
  const uint64_t key = step_key(base, step);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    out[i] = mix_keeps(key, first + i, limit);
}

at::Tensor keep_mask(const at::Tensor& like, double rate, int64_t key, int64_t first,
                     const std::optional<at::Tensor>& step) {
  const c10::cuda::CUDAGuard guard(like.device());
  at::Tensor mask = at::empty(like.sizes(), like.options().dtype(c10::kBool));
  if (mask.numel() == 0) return mask;
  const uint64_t limit = mix_threshold(rate);
  const int64_t blocks = std::min<int64_t>((mask.numel() + 255) / 256, 4096);
  launch(keep_mask_kernel, {blocks, 256}, static_cast<bool*>(mask.mutable_data_ptr()), mask.numel(),
         limit, static_cast<uint64_t>(key), static_cast<uint64_t>(first), place_of(step));
  return mask;
}

__global__ void keep_part_kernel(bool* out, int64_t count, uint64_t limit, uint64_t base,
                                 kernels::DropPlaces places, const int64_t* step) {
  const uint64_t key = step_key(base, step);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    out[i] = mix_keeps(key, static_cast<uint64_t>(places.of(i)), limit);
}

at::Tensor keep_part(const at::Tensor& like, double rate, int64_t key, int64_t first,
                     at::IntArrayRef whole, at::IntArrayRef held,
                     const std::optional<at::Tensor>& step) {
  const c10::cuda::CUDAGuard guard(like.device());
  at::Tensor mask = at::empty(like.sizes(), like.options().dtype(c10::kBool));
  if (mask.numel() == 0) return mask;
  const int64_t blocks = std::min<int64_t>((mask.numel() + 255) / 256, 4096);
  launch(keep_part_kernel, {blocks, 256}, static_cast<bool*>(mask.mutable_data_ptr()), mask.numel(),
         mix_threshold(rate), static_cast<uint64_t>(key),
         kernels::drop_places(like.sizes(), whole, held, first), place_of(step));
  return mask;
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("keep_mask", &keep_mask);
  library.impl("keep_part", &keep_part);
}

}  // namespace
}  // namespace braid::cuda
