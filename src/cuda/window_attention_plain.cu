// SPDX-License-Identifier: BSD-3-Clause
// Window attention for any dtype, window and head. A block of threads has one head of one window, a
// warp one query (or, for gradients of k and v, one key) at a time.
#include <ATen/Dispatch.h>

#include <type_traits>

#include "cuda/launch.cuh"
#include "cuda/window_attention.h"

namespace braid::cuda {
namespace {

using kernels::WindowPlaces;

constexpr int most_plain_threads = 512;
constexpr int64_t plain_shared = 96 << 10;  // bytes: as much as sm_80 and later give with ease

template <class T>
using WindowWide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The numbers of one head of a token, as they stand in the image or in shared memory.
template <class W, class From>
struct HeadRow {
  const From* first;
  __device__ W operator[](int c) const { return static_cast<W>(first[c]); }
};

// Rows of one head of one window, in shared memory (one number more a row: no bank conflicts) or,
// if that is too small, in the image.
template <class T, bool keep>
struct HeadRows {
  using W = WindowWide<T>;
  const T* from;
  W* kept;
  int of, which;

  __device__ const T* in_image(const WindowPlaces& p, int64_t pixel, int head) const {
    return from + ((pixel * of + which) * p.heads + head) * p.head;
  }
  __device__ auto row(const WindowPlaces& p, const int64_t* pixels, int head, int token) const {
    if constexpr (keep)
      return HeadRow<W, W>{kept + token * (static_cast<int>(p.head) + 1)};
    else
      return HeadRow<W, T>{in_image(p, pixels[token], head)};
  }
  __device__ void fill(const WindowPlaces& p, const int64_t* pixels, int head) const {
    if constexpr (!keep) return;
    const int tokens = static_cast<int>(p.tokens()), width = static_cast<int>(p.head);
    for (int i = threadIdx.x; i < tokens * width; i += blockDim.x) {
      const int token = i / width, c = i % width;
      kept[token * (width + 1) + c] = static_cast<W>(in_image(p, pixels[token], head)[c]);
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

// What a block holds in shared memory. Of tokens: pixel, side, and place in the bias table, whose
// row for two tokens is the difference of their places plus `middle`.
template <class T, bool keep>
struct PlainBlock {
  using W = WindowWide<T>;
  int64_t* pixels;
  int *sides, *places;
  W* bias;            // of this head
  W *row, *second;    // a number for each token, of this warp; `second` in backward passes alone
  W *logs, *commons;  // of queries
  W* sums;            // for the table, of this warp
  HeadRows<T, keep> q, k, v, grad;
  int tokens, width, head, middle;

  __device__ auto row_of(const WindowPlaces& p, const HeadRows<T, keep>& rows, int token) const {
    return rows.row(p, pixels, head, token);
  }
  // Calls give(token, a row of `rows`): two tokens of a lane at a time share what is read of `a`.
  template <class Row, class Give>
  __device__ void dots(const WindowPlaces& p, const Row& a, const HeadRows<T, keep>& rows,
                       const Give& give) const {
    for (int token = threadIdx.x % 32; token < tokens; token += 64) {
      const int next = token + 32 < tokens ? token + 32 : token;
      const auto one = row_of(p, rows, token), two = row_of(p, rows, next);
      W first = 0, other = 0;
#pragma unroll 4
      for (int c = 0; c < width; ++c) {
        first += a[c] * one[c];
        other += a[c] * two[c];
      }
      give(token, first);
      if (next != token) give(next, other);
    }
  }
  __device__ W column(const WindowPlaces& p, const W* weights, const HeadRows<T, keep>& rows,
                      int c) const {
    W sum = 0;
#pragma unroll 4
    for (int token = 0; token < tokens; ++token) sum += weights[token] * row_of(p, rows, token)[c];
    return sum;
  }
  __device__ int entry(int query, int key) const { return places[query] - places[key] + middle; }
  __device__ W score(const WindowPlaces& p, int query, int key, W dot) const {
    const W sum = dot * static_cast<W>(p.scale) + bias[entry(query, key)];
    return sides[query] == sides[key] ? sum : sum + static_cast<W>(kernels::hidden_score);
  }
  __device__ void enter(const WindowPlaces& p, int window, bool backward) const {
    for (int i = threadIdx.x; i < tokens; i += blockDim.x) {
      pixels[i] = p.pixel(window, i);
      sides[i] = p.side(window, i);
    }
    __syncthreads();
    q.fill(p, pixels, head);
    k.fill(p, pixels, head);
    v.fill(p, pixels, head);
    if (backward) grad.fill(p, pixels, head);
    __syncthreads();
  }
};

// How a kernel is launched: as many warps as there is shared memory for.
struct PlainShape {
  int warps;
  bool keep;
  int64_t bytes;
};

constexpr BRAID_ANYWHERE int64_t up16(int64_t bytes) { return (bytes + 15) / 16 * 16; }

template <class W>
int64_t plain_bytes(const WindowPlaces& p, bool backward, bool keep, int64_t warps) {
  constexpr int64_t each = sizeof(W);
  const int64_t tokens = p.tokens(), rows = backward ? 4 : 3;
  int64_t bytes = up16(8 * tokens) + 2 * up16(4 * tokens) + up16(p.entries() * each) +
                  (backward ? 2 : 1) * up16(warps * tokens * each);
  if (backward) bytes += 2 * up16(tokens * each) + up16(warps * p.entries() * each);
  return bytes + (keep ? rows * up16(tokens * (p.head + 1) * each) : 0);
}

template <class W>
PlainShape plain_shape(const WindowPlaces& p, bool backward) {
  for (const bool keep : {true, false})
    for (int warps = backward ? most_plain_threads / 32 : 4; warps >= 4; warps /= 2) {
      const int64_t bytes = plain_bytes<W>(p, backward, keep, warps);
      if (bytes <= plain_shared) return {warps, keep, bytes};
    }
  TORCH_CHECK(false, "windows of ", p.window, " pixels a side are too large");
}

template <class T>
struct PlainPointers {
  const T *qkv, *grad;
  const WindowWide<T>* table;
  T* out;
  WindowWide<T>* partial;
  T* value;  // of the backward pass: null, or the result
};

template <class T, bool keep>
__device__ PlainBlock<T, keep> plain_block(const WindowPlaces& p, const PlainPointers<T>& x,
                                           char* shared) {
  using W = WindowWide<T>;
  PlainBlock<T, keep> block;
  const int tokens = static_cast<int>(p.tokens()), entries = static_cast<int>(p.entries());
  const int side = static_cast<int>(p.window), warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const auto take = [&](int64_t bytes) {
    char* at = shared;
    shared += up16(bytes);
    return at;
  };
  const auto numbers = [&](int64_t count) { return reinterpret_cast<W*>(take(count * sizeof(W))); };
  block.tokens = tokens;
  block.width = static_cast<int>(p.head);
  block.middle = (side - 1) * 2 * side;
  block.head = static_cast<int>(blockIdx.x % p.heads);
  block.pixels = reinterpret_cast<int64_t*>(take(8 * tokens));
  block.sides = reinterpret_cast<int*>(take(4 * tokens));
  block.places = reinterpret_cast<int*>(take(4 * tokens));
  block.bias = numbers(entries);
  block.row = numbers(warps * tokens) + warp * tokens;
  if (x.grad != nullptr) {
    block.second = numbers(warps * tokens) + warp * tokens;
    block.logs = numbers(tokens);
    block.commons = numbers(tokens);
    block.sums = numbers(warps * entries) + warp * entries;
  }
  const auto rows = [&] { return keep ? numbers(tokens * (p.head + 1)) : nullptr; };
  block.q = {x.qkv, rows(), 3, 0};
  block.k = {x.qkv, rows(), 3, 1};
  block.v = {x.qkv, rows(), 3, 2};
  if (x.grad != nullptr) block.grad = {x.grad, rows(), 1, 0};
  for (int i = threadIdx.x; i < tokens; i += blockDim.x)
    block.places[i] = i / side * (2 * side - 1) + i % side;
  for (int i = threadIdx.x; i < entries; i += blockDim.x)
    block.bias[i] = x.table[i * p.heads + block.head];
  return block;
}

// Fills the warp's row with exp(score - top); returns top + log(sum), and the sum by `sum`.
template <class T, bool keep>
__device__ WindowWide<T> exp_scores(const WindowPlaces& p, const PlainBlock<T, keep>& block,
                                    int query, WindowWide<T>& sum) {
  using W = WindowWide<T>;
  W top = -INFINITY;
  block.dots(p, block.row_of(p, block.q, query), block.k, [&](int key, W dot) {
    block.row[key] = block.score(p, query, key, dot);
    top = block.row[key] > top ? block.row[key] : top;
  });
  top = warp_max(top);
  sum = 0;
  for (int key = threadIdx.x % 32; key < block.tokens; key += 32) {
    block.row[key] = exp(block.row[key] - top);
    sum += block.row[key];
  }
  sum = warp_sum(sum);
  __syncwarp();
  return top + log(sum);
}

// The weighted sum of the rows of v, by the weights in the warp's row.
template <class T, bool keep>
__device__ void plain_sum(const WindowPlaces& p, const PlainBlock<T, keep>& block, int query,
                          WindowWide<T> sum, T* out) {
  T* to = out + (block.pixels[query] * p.heads + block.head) * p.head;
  for (int c = threadIdx.x % 32; c < block.width; c += 32)
    to[c] = static_cast<T>(block.column(p, block.row, block.v, c) / sum);
}

template <class T, bool keep>
__global__ void window_plain_kernel(WindowPlaces p, PlainPointers<T> x) {
  const PlainBlock<T, keep> block = plain_block<T, keep>(p, x, shared_memory<char>());
  block.enter(p, static_cast<int>(blockIdx.x / p.heads), false);
  for (int query = threadIdx.x / 32; query < block.tokens; query += blockDim.x / 32) {
    WindowWide<T> sum;
    exp_scores(p, block, query, sum);
    plain_sum(p, block, query, sum, x.out);
    __syncwarp();
  }
}

// Query by query: gradients of scores, of q and of the table.
template <class T, bool keep>
__device__ void plain_queries(const WindowPlaces& p, const PlainPointers<T>& x,
                              const PlainBlock<T, keep>& block) {
  using W = WindowWide<T>;
  const int lane = threadIdx.x % 32;
  for (int query = threadIdx.x / 32; query < block.tokens; query += blockDim.x / 32) {
    W sum, common = 0;
    const W log_sum = exp_scores(p, block, query, sum);
    if (x.value != nullptr) plain_sum(p, block, query, sum, x.value);
    block.dots(p, block.row_of(p, block.grad, query), block.v, [&](int key, W dot) {
      block.second[key] = dot;
      common += block.row[key] / sum * dot;
    });
    common = warp_sum(common);
    for (int key = lane; key < block.tokens; key += 32) {
      const W grad = block.row[key] / sum * (block.second[key] - common);
      block.second[key] = grad;
      block.sums[block.entry(query, key)] += grad;  // keys of one query have entries of their own
    }
    if (lane == 0) {
      block.logs[query] = log_sum;
      block.commons[query] = common;
    }
    __syncwarp();
    T* to = x.out + (block.pixels[query] * 3 * p.heads + block.head) * p.head;
    for (int c = lane; c < block.width; c += 32)
      to[c] = static_cast<T>(block.column(p, block.second, block.k, c) * static_cast<W>(p.scale));
    __syncwarp();
  }
}

// Key by key: gradients of k and v.
template <class T, bool keep>
__device__ void plain_keys(const WindowPlaces& p, const PlainPointers<T>& x,
                           const PlainBlock<T, keep>& block) {
  using W = WindowWide<T>;
  for (int key = threadIdx.x / 32; key < block.tokens; key += blockDim.x / 32) {
    block.dots(p, block.row_of(p, block.k, key), block.q, [&](int query, W dot) {
      block.row[query] = exp(block.score(p, query, key, dot) - block.logs[query]);
    });
    block.dots(p, block.row_of(p, block.v, key), block.grad, [&](int query, W dot) {
      block.second[query] =
          block.row[query] * (dot - block.commons[query]) * static_cast<W>(p.scale);
    });
    __syncwarp();
    T* to = x.out + ((block.pixels[key] * 3 + 1) * p.heads + block.head) * p.head;
    for (int c = threadIdx.x % 32; c < block.width; c += 32) {
      to[c] = static_cast<T>(block.column(p, block.second, block.q, c));
      to[p.heads * p.head + c] = static_cast<T>(block.column(p, block.row, block.grad, c));
    }
    __syncwarp();
  }
}

template <class T, bool keep>
__global__ void __launch_bounds__(most_plain_threads)
    window_plain_grad_kernel(WindowPlaces p, PlainPointers<T> x) {
  using W = WindowWide<T>;
  const PlainBlock<T, keep> block = plain_block<T, keep>(p, x, shared_memory<char>());
  const int entries = static_cast<int>(p.entries()), warp = threadIdx.x / 32;
  W* all_sums = block.sums - warp * entries;
  for (int i = threadIdx.x; i < static_cast<int>(blockDim.x) / 32 * entries; i += blockDim.x)
    all_sums[i] = 0;
  const int64_t part = blockIdx.x / p.heads;
  for (int64_t window = part; window < p.windows(); window += p.parts()) {
    __syncthreads();
    block.enter(p, static_cast<int>(window), true);
    plain_queries(p, x, block);
    __syncthreads();
    plain_keys(p, x, block);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < entries; i += blockDim.x) {
    W sum = 0;
    for (int of = 0; of < static_cast<int>(blockDim.x) / 32; ++of)
      sum += all_sums[of * entries + i];
    x.partial[(part * p.heads + block.head) * p.entries() + i] = sum;
  }
}

template <class T>
void launch_plain(const WindowPlaces& p, const WindowTensors& x) {
  using W = WindowWide<T>;
  const bool backward = x.grad.defined();
  const PlainShape shape = plain_shape<W>(p, backward);
  PlainPointers<T> pointers = {x.qkv.const_data_ptr<T>(),   nullptr, x.table.const_data_ptr<W>(),
                               x.out.mutable_data_ptr<T>(), nullptr, nullptr};
  if (backward) {
    pointers.grad = x.grad.const_data_ptr<T>();
    pointers.partial = x.partial.mutable_data_ptr<W>();
    if (x.value.defined()) pointers.value = x.value.mutable_data_ptr<T>();
  }
  auto* kernel = shape.keep ? window_plain_kernel<T, true> : window_plain_kernel<T, false>;
  if (backward)
    kernel = shape.keep ? window_plain_grad_kernel<T, true> : window_plain_grad_kernel<T, false>;
  const int64_t blocks = (backward ? p.parts() : p.windows()) * p.heads;
  launch(kernel, {blocks, 32 * shape.warps, shape.bytes}, p, pointers);
}

}  // namespace

void attend_plain(const WindowPlaces& p, const WindowTensors& x) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.qkv.scalar_type(), "window_attention",
                                  [&] { launch_plain<scalar_t>(p, x); });
}

}  // namespace braid::cuda
