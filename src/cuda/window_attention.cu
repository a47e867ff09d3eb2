// SPDX-License-Identifier: BSD-3-Clause
// The operators of kernels/window_attention.h on the GPU, and plain kernels for any dtype, window
// and head; their CPU twins are in src/kernels/window_attention_cpu.cpp. A block of threads has one
// head of one window, a warp one query (or, for gradients of k and v, one key) at a time.
#include "cuda/window_attention.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <type_traits>

namespace braid::cuda {
namespace {

using kernels::WindowPlaces;

constexpr int plain_threads = 128, plain_warps = plain_threads / 32;
constexpr int64_t plain_shared = 96 << 10;  // bytes: as much as sm_80 and later give with ease

template <class T>
using WindowWide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Rows of one head of one window, in shared memory (one number more a row: no bank conflicts) or,
// if that is too small, in the image.
template <class T>
struct HeadRows {
  const T* from;
  WindowWide<T>* kept;  // null: read from the image
  int64_t of, which;

  __device__ WindowWide<T> at(const WindowPlaces& p, const int64_t* pixels, int head, int row,
                              int c) const {
    if (kept != nullptr) return kept[row * (p.head + 1) + c];
    return static_cast<WindowWide<T>>(
        from[((pixels[row] * of + which) * p.heads + head) * p.head + c]);
  }
  __device__ void keep(const WindowPlaces& p, const int64_t* pixels, int head) const {
    if (kept == nullptr) return;
    const int tokens = static_cast<int>(p.tokens()), width = static_cast<int>(p.head);
    for (int i = threadIdx.x; i < tokens * width; i += blockDim.x) {
      const int row = i / width, c = i % width;
      kept[row * (width + 1) + c] = static_cast<WindowWide<T>>(
          from[((pixels[row] * of + which) * p.heads + head) * width + c]);
    }
  }
};

template <class W>
__device__ W warp_sum(W value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

template <class W>
__device__ W warp_max(W value) {
  for (int step = 16; step > 0; step /= 2) {
    const W other = __shfl_xor_sync(0xffffffffu, value, step);
    value = other > value ? other : value;
  }
  return value;
}

// What a block holds in shared memory besides rows: pixels and sides of tokens, a row of numbers a
// warp, log-sums and common terms of queries, sums for the table a warp.
template <class T>
struct PlainBlock {
  using W = WindowWide<T>;
  int64_t* pixels;
  int* sides;
  W *row, *logs, *commons, *sums;
  HeadRows<T> q, k, v, grad;
  int head, window;

  __device__ W score(const WindowPlaces& p, const W* table, int i, int j) const {
    W sum = 0;
    for (int c = 0; c < p.head; ++c)
      sum += q.at(p, pixels, head, i, c) * k.at(p, pixels, head, j, c);
    sum = sum * static_cast<W>(p.scale) + table[p.entry(i, j) * p.heads + head];
    return sides[i] == sides[j] ? sum : sum + static_cast<W>(kernels::hidden_score);
  }
  __device__ W weight_grad(const WindowPlaces& p, int i, int j) const {
    W sum = 0;
    for (int c = 0; c < p.head; ++c)
      sum += grad.at(p, pixels, head, i, c) * v.at(p, pixels, head, j, c);
    return sum;
  }
  __device__ void place_tokens(const WindowPlaces& p) const {
    for (int i = threadIdx.x; i < p.tokens(); i += blockDim.x) {
      pixels[i] = p.pixel(window, i);
      sides[i] = p.side(window, i);
    }
    __syncthreads();
  }
};

int64_t up16(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// Bytes of shared memory; `rows`: how many of q, k, v and grad are kept there.
template <class W>
int64_t plain_bytes(const WindowPlaces& p, int rows, bool backward) {
  const int64_t tokens = p.tokens();
  int64_t bytes = up16(8 * tokens) + up16(4 * tokens) + up16(plain_warps * tokens * sizeof(W));
  if (backward) bytes += 2 * up16(tokens * sizeof(W)) + up16(plain_warps * p.entries() * sizeof(W));
  return bytes + rows * up16(tokens * (p.head + 1) * sizeof(W));
}

template <class T>
struct PlainPointers {
  const T *qkv, *grad;
  const WindowWide<T>* table;
  T* out;
  WindowWide<T>* partial;
  T* value;  // of the backward pass: null, or the result
};

template <class T>
__device__ PlainBlock<T> plain_block(const WindowPlaces& p, const PlainPointers<T>& x, bool keep,
                                     char* shared) {
  using W = WindowWide<T>;
  const int64_t tokens = p.tokens();
  const auto take = [&](int64_t bytes) {
    char* at = shared;
    shared += (bytes + 15) / 16 * 16;
    return at;
  };
  PlainBlock<T> block;
  block.pixels = reinterpret_cast<int64_t*>(take(8 * tokens));
  block.sides = reinterpret_cast<int*>(take(4 * tokens));
  block.row =
      reinterpret_cast<W*>(take(plain_warps * tokens * sizeof(W))) + threadIdx.x / 32 * tokens;
  if (x.grad != nullptr) {
    block.logs = reinterpret_cast<W*>(take(tokens * sizeof(W)));
    block.commons = reinterpret_cast<W*>(take(tokens * sizeof(W)));
    block.sums = reinterpret_cast<W*>(take(plain_warps * p.entries() * sizeof(W)));
  }
  const auto rows = [&]() {
    return keep ? reinterpret_cast<W*>(take(tokens * (p.head + 1) * sizeof(W))) : nullptr;
  };
  block.q = {x.qkv, rows(), 3, 0};
  block.k = {x.qkv, rows(), 3, 1};
  block.v = {x.qkv, rows(), 3, 2};
  if (x.grad != nullptr) block.grad = {x.grad, rows(), 1, 0};
  return block;
}

// Fills the warp's row with exp(score - top); returns top + log(sum), and the sum by `sum`.
template <class T>
__device__ WindowWide<T> exp_scores(const WindowPlaces& p, const PlainBlock<T>& block,
                                    const WindowWide<T>* table, int i, WindowWide<T>& sum) {
  using W = WindowWide<T>;
  const int lane = threadIdx.x % 32, tokens = static_cast<int>(p.tokens());
  W top = -INFINITY;
  for (int j = lane; j < tokens; j += 32) {
    block.row[j] = block.score(p, table, i, j);
    top = block.row[j] > top ? block.row[j] : top;
  }
  top = warp_max(top);
  sum = 0;
  for (int j = lane; j < tokens; j += 32) {
    block.row[j] = exp(block.row[j] - top);
    sum += block.row[j];
  }
  sum = warp_sum(sum);
  __syncwarp();
  return top + log(sum);
}

// The weighted sum of the rows of v, by the weights in the warp's row.
template <class T>
__device__ void plain_sum(const WindowPlaces& p, const PlainBlock<T>& block, int i,
                          WindowWide<T> sum, T* out) {
  using W = WindowWide<T>;
  T* to = out + (block.pixels[i] * p.heads + block.head) * p.head;
  for (int c = threadIdx.x % 32; c < p.head; c += 32) {
    W value = 0;
    for (int j = 0; j < p.tokens(); ++j)
      value += block.row[j] * block.v.at(p, block.pixels, block.head, j, c);
    to[c] = static_cast<T>(value / sum);
  }
}

template <class T>
__global__ void window_plain_kernel(WindowPlaces p, PlainPointers<T> x, bool keep) {
  using W = WindowWide<T>;
  extern __shared__ __align__(16) char plain_memory[];
  PlainBlock<T> block = plain_block(p, x, keep, plain_memory);
  block.head = static_cast<int>(blockIdx.x % p.heads);
  block.window = static_cast<int>(blockIdx.x / p.heads);
  block.place_tokens(p);
  block.q.keep(p, block.pixels, block.head);
  block.k.keep(p, block.pixels, block.head);
  block.v.keep(p, block.pixels, block.head);
  __syncthreads();
  for (int i = threadIdx.x / 32; i < p.tokens(); i += plain_warps) {
    W sum;
    exp_scores(p, block, x.table, i, sum);
    plain_sum(p, block, i, sum, x.out);
    __syncwarp();
  }
}

// Query by query: gradients of scores, of q and of the table.
template <class T>
__device__ void plain_queries(const WindowPlaces& p, const PlainPointers<T>& x,
                              const PlainBlock<T>& block) {
  using W = WindowWide<T>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tokens = static_cast<int>(p.tokens());
  W* sums = block.sums + warp * p.entries();
  for (int i = warp; i < tokens; i += plain_warps) {
    W sum, common = 0;
    const W log_sum = exp_scores(p, block, x.table, i, sum);
    if (x.value != nullptr) plain_sum(p, block, i, sum, x.value);
    __syncwarp();
    for (int j = lane; j < tokens; j += 32)
      common += block.row[j] / sum * block.weight_grad(p, i, j);
    common = warp_sum(common);
    for (int j = lane; j < tokens; j += 32) {
      const W grad = block.row[j] / sum * (block.weight_grad(p, i, j) - common);
      block.row[j] = grad;
      sums[p.entry(i, j)] += grad;  // keys of one query have entries of their own
    }
    if (lane == 0) {
      block.logs[i] = log_sum;
      block.commons[i] = common;
    }
    __syncwarp();
    T* to = x.out + (block.pixels[i] * 3 * p.heads + block.head) * p.head;
    for (int c = lane; c < p.head; c += 32) {
      W value = 0;
      for (int j = 0; j < tokens; ++j)
        value += block.row[j] * block.k.at(p, block.pixels, block.head, j, c);
      to[c] = static_cast<T>(value * static_cast<W>(p.scale));
    }
    __syncwarp();
  }
}

// Key by key: gradients of k and v.
template <class T>
__device__ void plain_keys(const WindowPlaces& p, const PlainPointers<T>& x,
                           const PlainBlock<T>& block) {
  using W = WindowWide<T>;
  const int lane = threadIdx.x % 32, tokens = static_cast<int>(p.tokens());
  for (int j = threadIdx.x / 32; j < tokens; j += plain_warps) {
    for (int of = 1; of < 3; ++of) {  // k, v
      for (int i = lane; i < tokens; i += 32) {
        const W weight = exp(block.score(p, x.table, i, j) - block.logs[i]);
        block.row[i] = of == 2 ? weight
                               : weight * (block.weight_grad(p, i, j) - block.commons[i]) *
                                     static_cast<W>(p.scale);
      }
      __syncwarp();
      T* to = x.out + ((block.pixels[j] * 3 + of) * p.heads + block.head) * p.head;
      const HeadRows<T>& rows = of == 1 ? block.q : block.grad;
      for (int c = lane; c < p.head; c += 32) {
        W value = 0;
        for (int i = 0; i < tokens; ++i)
          value += block.row[i] * rows.at(p, block.pixels, block.head, i, c);
        to[c] = static_cast<T>(value);
      }
      __syncwarp();
    }
  }
}

template <class T>
__global__ void window_plain_grad_kernel(WindowPlaces p, PlainPointers<T> x, bool keep) {
  using W = WindowWide<T>;
  extern __shared__ __align__(16) char plain_grad_memory[];
  PlainBlock<T> block = plain_block(p, x, keep, plain_grad_memory);
  block.head = static_cast<int>(blockIdx.x % p.heads);
  const int64_t part = blockIdx.x / p.heads;
  for (int i = threadIdx.x; i < plain_warps * p.entries(); i += blockDim.x) block.sums[i] = 0;
  for (int64_t window = part; window < p.windows(); window += p.parts()) {
    __syncthreads();
    block.window = static_cast<int>(window);
    block.place_tokens(p);
    block.q.keep(p, block.pixels, block.head);
    block.k.keep(p, block.pixels, block.head);
    block.v.keep(p, block.pixels, block.head);
    block.grad.keep(p, block.pixels, block.head);
    __syncthreads();
    plain_queries(p, x, block);
    __syncthreads();
    plain_keys(p, x, block);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.entries(); i += blockDim.x) {
    W sum = 0;
    for (int warp = 0; warp < plain_warps; ++warp) sum += block.sums[warp * p.entries() + i];
    x.partial[(part * p.heads + block.head) * p.entries() + i] = sum;
  }
}

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

template <class T>
void attend_plain(const WindowPlaces& p, const WindowTensors& x) {
  using W = WindowWide<T>;
  const bool backward = x.grad.defined();
  const int rows = backward ? 4 : 3;
  const bool keep = plain_bytes<W>(p, rows, backward) <= plain_shared;
  const int64_t bytes = plain_bytes<W>(p, keep ? rows : 0, backward);
  TORCH_CHECK(bytes <= plain_shared, "windows of ", p.window, " pixels a side are too large");
  PlainPointers<T> pointers = {x.qkv.const_data_ptr<T>(),   nullptr, x.table.const_data_ptr<W>(),
                               x.out.mutable_data_ptr<T>(), nullptr, nullptr};
  auto* kernel = backward ? window_plain_grad_kernel<T> : window_plain_kernel<T>;
  if (backward) {
    pointers.grad = x.grad.const_data_ptr<T>();
    pointers.partial = x.partial.mutable_data_ptr<W>();
    if (x.value.defined()) pointers.value = x.value.mutable_data_ptr<T>();
  }
  C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(bytes)));
  const int64_t blocks = (backward ? p.parts() : p.windows()) * p.heads;
  kernel<<<static_cast<unsigned>(blocks), plain_threads, static_cast<size_t>(bytes),
           c10::cuda::getCurrentCUDAStream()>>>(p, pointers, keep);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor window_attention(const at::Tensor& qkv, const at::Tensor& table, int64_t window,
                            at::IntArrayRef edges, double scale) {
  const c10::cuda::CUDAGuard guard(qkv.device());
  const WindowPlaces p = kernels::window_places(qkv, table, window, edges, scale);
  WindowTensors x = {qkv, table};
  x.out = at::empty({p.batch, p.height, p.width, p.heads * p.head}, qkv.options());
  if (p.windows() == 0) return x.out;
  if (has_fast_windows(p, qkv.scalar_type())) {
    attend_fast(p, x);
    return x.out;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, qkv.scalar_type(), "window_attention",
                                  [&] { attend_plain<scalar_t>(p, x); });
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
  if (has_fast_windows(p, qkv.scalar_type())) {
    attend_fast_grad(p, x);
  } else {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, qkv.scalar_type(),
                                    "window_attention_grad", [&] { attend_plain<scalar_t>(p, x); });
  }
  AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "window_table", [&] {
    window_table_kernel<scalar_t><<<static_cast<unsigned>((table.numel() + 127) / 128), 128, 0,
                                    c10::cuda::getCurrentCUDAStream()>>>(
        to_table.mutable_data_ptr<scalar_t>(), x.partial.const_data_ptr<scalar_t>(), p.parts(),
        p.heads, p.entries());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {x.out, to_table, x.value};
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("window_attention", &window_attention);
  library.impl("window_attention_grad", &window_attention_grad);
}

}  // namespace
}  // namespace braid::cuda
