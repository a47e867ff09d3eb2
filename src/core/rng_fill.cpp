// SPDX-License-Identifier: BSD-3-Clause
// Tensors filled with random numbers: on the host in parallel, on a GPU by the kernels of
// libbraid_cuda (src/cuda/rng.cu).
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "braid/core/dry.h"
#include "braid/core/in_parts.h"
#include "braid/core/rng.h"

namespace braid {
namespace {

// Draws of one index that are refused are repeated under a key of their own, so no other index is
// touched.
double bounded_normal(RandomKey key, uint64_t index, const NormalOptions& options) {
  for (uint64_t attempt = 0;; ++attempt) {
    const RandomKey drawn = attempt == 0 ? key : key.with(attempt);
    const double value = options.mean + options.std * random_normal(drawn, index);
    if (value >= options.low && value <= options.high) return value;
  }
}

template <class Draw>
void fill_with(const at::Tensor& tensor, int64_t first, const Draw& draw) {
  const auto drawn = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor host = at::empty(tensor.sizes(), at::TensorOptions().dtype(drawn));
  in_parts(host.numel(), 4096, [&](int64_t begin, int64_t end) {
    if (drawn == at::kDouble) {
      double* out = host.data_ptr<double>();
      for (int64_t i = begin; i < end; ++i) out[i] = draw(static_cast<uint64_t>(first + i));
    } else {
      float* out = host.data_ptr<float>();
      for (int64_t i = begin; i < end; ++i)
        out[i] = static_cast<float>(draw(static_cast<uint64_t>(first + i)));
    }
  });
  tensor.copy_(host);
}

void fill_normal_by_host(const at::Tensor& x, int64_t key, int64_t first, double mean, double std,
                         double low, double high) {
  const NormalOptions options{.mean = mean, .std = std, .low = low, .high = high};
  const RandomKey own{static_cast<uint64_t>(key)};
  fill_with(x, first, [&](uint64_t index) { return bounded_normal(own, index, options); });
}

void fill_uniform_by_host(const at::Tensor& x, int64_t key, int64_t first, double low,
                          double high) {
  const RandomKey own{static_cast<uint64_t>(key)};
  fill_with(x, first,
            [&](uint64_t index) { return low + (high - low) * random_uniform(own, index); });
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def(
      "fill_normal(Tensor(a!) x, int key, int first, float mean, float std, float low, float high) "
      "-> ()");
  library.def("fill_uniform(Tensor(a!) x, int key, int first, float low, float high) -> ()");
}
TORCH_LIBRARY_IMPL(braid, CompositeExplicitAutograd, library) {
  library.impl("fill_normal", &fill_normal_by_host);
  library.impl("fill_uniform", &fill_uniform_by_host);
}

}  // namespace

void fill_normal(const at::Tensor& tensor, RandomKey key, NormalOptions options, int64_t first) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::fill_normal", "")
                             .typed<decltype(fill_normal_by_host)>();
  if (tensor.numel() == 0 || !has_data(tensor)) return;
  op.call(tensor.detach(), static_cast<int64_t>(key.bits), first, options.mean, options.std,
          options.low, options.high);
}

void fill_uniform(const at::Tensor& tensor, RandomKey key, double low, double high, int64_t first) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::fill_uniform", "")
                             .typed<decltype(fill_uniform_by_host)>();
  if (tensor.numel() == 0 || !has_data(tensor)) return;
  op.call(tensor.detach(), static_cast<int64_t>(key.bits), first, low, high);
}

}  // namespace braid
