// SPDX-License-Identifier: BSD-3-Clause
// The operators of kernels/window_attention.h on the GPU; their CPU twins are in
// src/kernels/window_attention_cpu.cpp.
#include "cuda/window_attention.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "cuda/launch.cuh"

namespace braid::cuda {
namespace {

using kernels::WindowPlaces;

// Sums over parts, in their order: [parts, heads, entries] -> [entries, heads].
template <class W>
__global__ void window_table_kernel(W* out, const W* partial, int64_t parts, int64_t heads,
                                    int64_t entries) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= heads * entries) return;
  W sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += partial[part * heads * entries + i];
  out[i % entries * heads + i / entries] = sum;
}

at::Tensor window_attention(const at::Tensor& qkv, const at::Tensor& table, int64_t window,
                            at::IntArrayRef edges, double scale) {
  const c10::cuda::CUDAGuard guard(qkv.device());
  const WindowPlaces p = kernels::window_places(qkv, table, window, edges, scale);
  WindowTensors x = {qkv, table};
  x.out = at::empty({p.batch, p.height, p.width, p.heads * p.head}, qkv.options());
  if (p.windows() == 0) return x.out;
  has_fast_windows(p, qkv.scalar_type()) ? attend_fast(p, x) : attend_plain(p, x);
  return x.out;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> window_attention_grad(
    const at::Tensor& grad, const at::Tensor& qkv, const at::Tensor& table, int64_t window,
    at::IntArrayRef edges, double scale, bool again) {
  const c10::cuda::CUDAGuard guard(qkv.device());
  const WindowPlaces p = kernels::window_places(qkv, table, window, edges, scale);
  WindowTensors x = {qkv, table, grad};
  x.out = at::empty(qkv.sizes(), qkv.options());
  if (again) x.value = at::empty(grad.sizes(), grad.options());
  if (p.windows() == 0) return {x.out, at::zeros(table.sizes(), table.options()), x.value};
  at::Tensor to_table = at::empty(table.sizes(), table.options());
  x.partial = at::empty({p.parts(), p.heads, p.entries()}, table.options());
  has_fast_windows(p, qkv.scalar_type()) ? attend_fast_grad(p, x) : attend_plain(p, x);
  AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "window_table", [&] {
    launch(window_table_kernel<scalar_t>, {(table.numel() + 127) / 128, 128},
           to_table.mutable_data_ptr<scalar_t>(), x.partial.const_data_ptr<scalar_t>(), p.parts(),
           p.heads, p.entries());
  });
  return {x.out, to_table, x.value};
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("window_attention", &window_attention);
  library.impl("window_attention_grad", &window_attention_grad);
}

}  // namespace
}  // namespace braid::cuda
