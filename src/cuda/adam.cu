// SPDX-License-Identifier: BSD-3-Clause
// The update of kernels/adam.h on the GPU: one launch for up to `most_tensors` tensors, whose
// addresses travel with the launch, so that nothing is allocated or copied. Bound by memory:
// 16-byte loads and stores, past the caches. Its CPU twin is adam_cpu.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "cuda/aligned.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"

namespace braid::cuda {
namespace {

constexpr int adam_threads = 256;
constexpr int adam_vector = 8;           // elements that a thread loads of each stream at once
constexpr int64_t adam_chunk = 1 << 14;  // elements of a block
constexpr int most_tensors = 56;         // a launch takes 4 kB of arguments

struct AdamEntry {
  void *target, *exp_avg, *exp_avg_sq, *weight;
  const void* grad;
  const float* step;
  int64_t count;
  int first_chunk;
  bool vectors;  // all addresses are multiples of 16 bytes
};

struct AdamArguments {
  const void *lr_there, *factor, *found_inf;
  double lr, beta1, beta2, eps, decay;
  float log_beta1, log_beta2;
  int tensors;
  bool decoupled;
  signed char grad_type, weight_type;  // of the kernel for rare dtypes
  AdamEntry entries[most_tensors];
};
static_assert(sizeof(AdamArguments) <= 4096);

template <class W>
struct AdamFactors {
  W grad, l2, keep, beta1, rest1, beta2, rest2, size, root, eps;
};

template <class W>
__device__ W scalar_or(const void* there, W otherwise) {
  return there != nullptr ? *static_cast<const W*>(there) : otherwise;
}

// 1 - beta^step; by expm1 no digits are lost.
__device__ float bias_correction(double, float log_beta, float step, float) {
  return -expm1f(step * log_beta);
}
__device__ double bias_correction(double beta, float, float step, double) {
  return 1 - pow(beta, static_cast<double>(step));
}

template <class W>
__device__ AdamFactors<W> factors_of(const AdamArguments& a, const AdamEntry& entry) {
  const W lr = static_cast<W>(scalar_or<double>(a.lr_there, a.lr));
  const float step = *entry.step;
  AdamFactors<W> f;
  f.grad = scalar_or<W>(a.factor, W(1));
  f.l2 = a.decoupled ? W(0) : static_cast<W>(a.decay);
  f.keep = a.decoupled ? W(1) - lr * static_cast<W>(a.decay) : W(1);
  f.beta1 = static_cast<W>(a.beta1);
  f.rest1 = static_cast<W>(1 - a.beta1);
  f.beta2 = static_cast<W>(a.beta2);
  f.rest2 = static_cast<W>(1 - a.beta2);
  f.size = lr / bias_correction(a.beta1, a.log_beta1, step, W());
  f.root = W(1) / sqrt(bias_correction(a.beta2, a.log_beta2, step, W()));
  f.eps = static_cast<W>(a.eps);
  return f;
}

// Rounded to 16 bits anyway: the fast square root and division (2^-22) will do.
template <bool fast, class W>
__device__ __forceinline__ W step_of(W m, W v, const AdamFactors<W>& f) {
  if constexpr (fast)
    return __fdividef(f.size * m, fmaf(root_of(v), f.root, f.eps));
  else
    return f.size * m / (sqrt(v) * f.root + f.eps);
}

template <bool fast, class W>
__device__ __forceinline__ void adam_element(W& p, W g, W& m, W& v, const AdamFactors<W>& f) {
  g = g * f.grad + f.l2 * p;
  m = f.beta1 * m + f.rest1 * g;
  v = f.beta2 * v + f.rest2 * g * g;
  p = p * f.keep - step_of<fast>(m, v, f);
}

// Eight elements as they lie in memory.
template <class T>
struct AdamRaw {
  static constexpr int words = adam_vector * sizeof(T) / 16;
  uint4 word[words];

  __device__ __forceinline__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < words; ++i) word[i] = __ldcs(reinterpret_cast<const uint4*>(from) + i);
  }
  __device__ __forceinline__ void store(T* to) const {
#pragma unroll
    for (int i = 0; i < words; ++i) __stcs(reinterpret_cast<uint4*>(to) + i, word[i]);
  }
  __device__ __forceinline__ float get(int i) const {
    return static_cast<float>(reinterpret_cast<const T*>(word)[i]);
  }
  __device__ __forceinline__ void set(int i, float value) {
    reinterpret_cast<T*>(word)[i] = static_cast<T>(value);
  }
};

struct NoWeight {};

// P: of targets and moments, G: of gradients, C: of the copies of the targets.
template <class P, class G, class C>
struct AdamOf {
  static constexpr bool copies = !std::is_same_v<C, NoWeight>;
  static constexpr bool fast = sizeof(P) == 2;
  // Vectors that a thread has in flight: 128 bytes of each kind.
  static constexpr int vectors = sizeof(P) == 2 ? 2 : 1;

  P *p, *m, *v;
  const G* g;
  C* copy;
  AdamFactors<float> f;

  __device__ AdamOf(const AdamEntry& entry, const AdamFactors<float>& factors)
      : p(static_cast<P*>(entry.target)),
        m(static_cast<P*>(entry.exp_avg)),
        v(static_cast<P*>(entry.exp_avg_sq)),
        g(static_cast<const G*>(entry.grad)),
        copy(static_cast<C*>(entry.weight)),
        f(factors) {}

  __device__ void one(int64_t i) const {
    float target = static_cast<float>(p[i]), m1 = static_cast<float>(m[i]),
          v1 = static_cast<float>(v[i]);
    adam_element<fast>(target, static_cast<float>(g[i]), m1, v1, f);
    p[i] = static_cast<P>(target);
    m[i] = static_cast<P>(m1);
    v[i] = static_cast<P>(v1);
    if constexpr (copies) copy[i] = static_cast<C>(target);
  }

  struct Held {
    AdamRaw<P> p, m, v;
    AdamRaw<G> g;
  };

  __device__ __forceinline__ void load(Held& held, int64_t i) const {
    held.p.load(p + i);
    held.g.load(g + i);
    held.m.load(m + i);
    held.v.load(v + i);
  }

  __device__ __forceinline__ void finish(Held& held, int64_t i) const {
    AdamRaw<std::conditional_t<copies, C, P>> rounded;
#pragma unroll
    for (int k = 0; k < adam_vector; ++k) {
      float target = held.p.get(k), m1 = held.m.get(k), v1 = held.v.get(k);
      adam_element<fast>(target, held.g.get(k), m1, v1, f);
      held.p.set(k, target);
      held.m.set(k, m1);
      held.v.set(k, v1);
      if constexpr (copies) rounded.set(k, target);
    }
    held.p.store(p + i);
    held.m.store(m + i);
    held.v.store(v + i);
    if constexpr (copies) rounded.store(copy + i);
  }

  // [begin, end) of one block.
  __device__ void by_vectors(int64_t begin, int64_t end) const {
    constexpr int64_t step = adam_threads * adam_vector;
    const int64_t whole = end - (end - begin) % adam_vector;
    for (int64_t i = begin + threadIdx.x * adam_vector; i < whole; i += vectors * step) {
      Held held[vectors];
#pragma unroll
      for (int n = 0; n < vectors; ++n)
        if (i + n * step < whole) load(held[n], i + n * step);
#pragma unroll
      for (int n = 0; n < vectors; ++n)
        if (i + n * step < whole) finish(held[n], i + n * step);
    }
    if (whole + threadIdx.x < end) one(whole + threadIdx.x);
  }

  __device__ void one_by_one(int64_t begin, int64_t end) const {
    for (int64_t i = begin + threadIdx.x; i < end; i += adam_threads) one(i);
  }
};

// The last entry that begins at or before this block.
__device__ int entry_of_block(const AdamArguments& a) {
  int low = 0, high = a.tensors;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (a.entries[middle].first_chunk <= static_cast<int>(blockIdx.x))
      low = middle;
    else
      high = middle;
  }
  return low;
}

template <class P, class G, class C>
__global__ void __launch_bounds__(adam_threads, 3)
    adam_kernel(const __grid_constant__ AdamArguments a) {
  if (a.found_inf != nullptr && *static_cast<const float*>(a.found_inf) != 0) return;
  const AdamEntry& entry = a.entries[entry_of_block(a)];
  const int64_t begin = (static_cast<int>(blockIdx.x) - entry.first_chunk) * adam_chunk;
  const int64_t end = min(begin + adam_chunk, entry.count);
  const AdamOf<P, G, C> update(entry, factors_of<float>(a, entry));
  if (entry.vectors)
    update.by_vectors(begin, end);
  else
    update.one_by_one(begin, end);
}

// Dtypes that no training uses much: told apart element by element.
template <class W>
__device__ W loaded(const void* from, int64_t i, int type) {
  if (type == static_cast<int>(at::kDouble))
    return static_cast<W>(static_cast<const double*>(from)[i]);
  if (type == static_cast<int>(at::kFloat))
    return static_cast<W>(static_cast<const float*>(from)[i]);
  if (type == static_cast<int>(at::kHalf))
    return static_cast<W>(static_cast<const at::Half*>(from)[i]);
  return static_cast<W>(static_cast<const at::BFloat16*>(from)[i]);
}

template <class W>
__device__ void stored(void* to, int64_t i, int type, W value) {
  if (type == static_cast<int>(at::kDouble))
    static_cast<double*>(to)[i] = static_cast<double>(value);
  else if (type == static_cast<int>(at::kFloat))
    static_cast<float*>(to)[i] = static_cast<float>(value);
  else if (type == static_cast<int>(at::kHalf))
    static_cast<at::Half*>(to)[i] = static_cast<at::Half>(static_cast<float>(value));
  else
    static_cast<at::BFloat16*>(to)[i] = static_cast<at::BFloat16>(static_cast<float>(value));
}

template <class P, class W>
__global__ void __launch_bounds__(adam_threads)
    adam_any_kernel(const __grid_constant__ AdamArguments a) {
  if (a.found_inf != nullptr && *static_cast<const W*>(a.found_inf) != 0) return;
  const AdamEntry& entry = a.entries[entry_of_block(a)];
  const int64_t begin = (static_cast<int>(blockIdx.x) - entry.first_chunk) * adam_chunk;
  const int64_t end = min(begin + adam_chunk, entry.count);
  const AdamFactors<W> f = factors_of<W>(a, entry);
  P *targets = static_cast<P*>(entry.target), *m = static_cast<P*>(entry.exp_avg),
    *v = static_cast<P*>(entry.exp_avg_sq);
  for (int64_t i = begin + threadIdx.x; i < end; i += adam_threads) {
    W p = static_cast<W>(targets[i]), m1 = static_cast<W>(m[i]), v1 = static_cast<W>(v[i]);
    adam_element<false>(p, loaded<W>(entry.grad, i, a.grad_type), m1, v1, f);
    targets[i] = static_cast<P>(p);
    m[i] = static_cast<P>(m1);
    v[i] = static_cast<P>(v1);
    if (entry.weight != nullptr) stored<W>(entry.weight, i, a.weight_type, p);
  }
}

using AdamKernel = void (*)(AdamArguments);

AdamKernel adam_kernel_for(at::ScalarType target, at::ScalarType grad,
                           std::optional<at::ScalarType> weight) {
  using at::kBFloat16, at::kFloat, at::kHalf;
  using B = at::BFloat16;
  using H = at::Half;
  const auto is = [&](at::ScalarType p, at::ScalarType g, std::optional<at::ScalarType> c) {
    return target == p && grad == g && weight == c;
  };
  if (is(kFloat, kFloat, {})) return &adam_kernel<float, float, NoWeight>;
  if (is(kFloat, kBFloat16, {})) return &adam_kernel<float, B, NoWeight>;
  if (is(kFloat, kFloat, kBFloat16)) return &adam_kernel<float, float, B>;
  if (is(kFloat, kBFloat16, kBFloat16)) return &adam_kernel<float, B, B>;
  if (is(kFloat, kFloat, kHalf)) return &adam_kernel<float, float, H>;
  if (is(kFloat, kHalf, kHalf)) return &adam_kernel<float, H, H>;
  if (is(kBFloat16, kBFloat16, {})) return &adam_kernel<B, B, NoWeight>;
  if (is(kBFloat16, kFloat, {})) return &adam_kernel<B, float, NoWeight>;
  if (target == at::kDouble) return &adam_any_kernel<double, double>;
  if (target == kFloat) return &adam_any_kernel<float, float>;
  if (target == kHalf) return &adam_any_kernel<H, float>;
  return &adam_any_kernel<B, float>;
}

const void* address_of(const std::optional<at::Tensor>& scalar) {
  return scalar && scalar->defined() ? scalar->const_data_ptr() : nullptr;
}

// Fills the arguments of one launch after the other.
struct AdamLaunches {
  AdamKernel kernel;
  AdamArguments arguments;
  int64_t chunks = 0;

  void add(AdamEntry entry) {
    if (entry.count == 0) return;
    const int64_t more = (entry.count + adam_chunk - 1) / adam_chunk;
    if (arguments.tensors == most_tensors || chunks + more > INT32_MAX) go();
    entry.first_chunk = static_cast<int>(chunks);
    entry.vectors =
        aligned(16, {entry.target, entry.exp_avg, entry.exp_avg_sq, entry.weight, entry.grad});
    arguments.entries[arguments.tensors++] = entry;
    chunks += more;
  }

  void go() {
    if (arguments.tensors == 0) return;
    launch(kernel, {chunks, adam_threads}, arguments);
    arguments.tensors = 0;
    chunks = 0;
  }
};

void adam(at::TensorList targets, at::TensorList grads, at::TensorList exp_avgs,
          at::TensorList exp_avg_sqs, at::TensorList weights, at::TensorList steps, double lr,
          const std::optional<at::Tensor>& lr_there, double beta1, double beta2, double eps,
          double decay, bool decoupled, const std::optional<at::Tensor>& factor,
          const std::optional<at::Tensor>& found_inf) {
  const c10::cuda::CUDAGuard guard(targets[0].device());
  const at::ScalarType grad = grads[0].scalar_type();
  std::optional<at::ScalarType> weight;
  if (!weights.empty()) weight = weights[0].scalar_type();
  AdamLaunches launches{adam_kernel_for(targets[0].scalar_type(), grad, weight), {}};
  AdamArguments& a = launches.arguments;
  a.lr_there = address_of(lr_there);
  a.factor = address_of(factor);
  a.found_inf = address_of(found_inf);
  a.lr = lr, a.beta1 = beta1, a.beta2 = beta2, a.eps = eps, a.decay = decay;
  a.log_beta1 = static_cast<float>(std::log(beta1));
  a.log_beta2 = static_cast<float>(std::log(beta2));
  a.decoupled = decoupled;
  a.grad_type = static_cast<signed char>(grad);
  a.weight_type = static_cast<signed char>(weight.value_or(grad));
  for (size_t i = 0; i < targets.size(); ++i)
    launches.add({.target = targets[i].mutable_data_ptr(),
                  .exp_avg = exp_avgs[i].mutable_data_ptr(),
                  .exp_avg_sq = exp_avg_sqs[i].mutable_data_ptr(),
                  .weight = weights.empty() ? nullptr : weights[i].mutable_data_ptr(),
                  .grad = grads[i].const_data_ptr(),
                  .step = steps[i].const_data_ptr<float>(),
                  .count = targets[i].numel(),
                  .first_chunk = 0,
                  .vectors = false});
  launches.go();
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) { library.impl("adam_", &adam); }

}  // namespace
}  // namespace braid::cuda
