// SPDX-License-Identifier: BSD-3-Clause
// Meta kernels of normalisations and of variances.
#include <array>
#include <optional>
#include <tuple>

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

using NormResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Statistics have the input's dtype on the CPU unless the weights are wider; fp32 on CUDA.
c10::ScalarType statistics_dtype(const at::Tensor& x, const std::optional<at::Tensor>& weight) {
  if (dry_on(c10::kCUDA)) return accumulate_dtype(x.scalar_type());
  const bool mixed = weight && weight->defined() && weight->scalar_type() != x.scalar_type();
  return mixed ? c10::kFloat : x.scalar_type();
}

// [..., 1, 1]: one number for each normalised row.
std::vector<int64_t> statistics_sizes(const at::Tensor& x, size_t normalised) {
  std::vector<int64_t> sizes = x.sizes().vec();
  for (size_t i = sizes.size() - normalised; i < sizes.size(); ++i) sizes[i] = 1;
  return sizes;
}

NormResult meta_layer_norm(const at::Tensor& x, c10::SymIntArrayRef normalised,
                           const std::optional<at::Tensor>& weight,
                           const std::optional<at::Tensor>&, double) {
  Scratch copies(x);
  if (!x.is_contiguous()) copies.take(bytes_of(x));
  const auto dtype = statistics_dtype(x, weight);
  const auto sizes = statistics_sizes(x, normalised.size());
  at::Tensor y = fresh_contiguous(x), mean = fresh(sizes, x, dtype);
  return {y, mean, fresh(sizes, x, dtype)};
}

NormResult meta_layer_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                    c10::SymIntArrayRef normalised, const at::Tensor&,
                                    const at::Tensor&, const std::optional<at::Tensor>& weight,
                                    const std::optional<at::Tensor>& bias,
                                    std::array<bool, 3> wanted) {
  Scratch buffers(x);
  at::Tensor grad_x, grad_weight, grad_bias;
  if (wanted[0]) grad_x = fresh_contiguous(x);
  if (wanted[1]) grad_weight = fresh_contiguous(*weight);
  if (wanted[2]) grad_bias = fresh_contiguous(*bias);
  for (const at::Tensor& read : {x, grad})
    if (!read.is_contiguous()) buffers.take(bytes_of(read));
  if (dry_on(c10::kCPU) && x.numel() > 0) {
    // Each thread adds up its own rows of the two weight gradients.
    int64_t row = static_cast<int64_t>(x.element_size());
    for (const c10::SymInt& size : normalised) row *= size.expect_int();
    if (wanted[1] || wanted[2]) buffers.take(int64_t{2} * at::get_num_threads() * row);
  }
  return {grad_x, grad_weight, grad_bias};
}

std::tuple<at::Tensor, at::Tensor> meta_rms_norm(const at::Tensor& x, at::IntArrayRef normalised,
                                                 const std::optional<at::Tensor>&,
                                                 std::optional<double>) {
  at::Tensor y = fresh_contiguous(x);
  const auto sizes = statistics_sizes(x, normalised.size());
  return {y, fresh(sizes, x, accumulate_dtype(x.scalar_type()))};
}

std::tuple<at::Tensor, at::Tensor> meta_rms_norm_backward(const at::Tensor&, const at::Tensor& x,
                                                          at::IntArrayRef, const at::Tensor&,
                                                          const std::optional<at::Tensor>& weight,
                                                          std::array<bool, 2> wanted) {
  at::Tensor grad_x, grad_weight;
  if (wanted[0]) grad_x = fresh_contiguous(x);
  if (wanted[1] && weight && weight->defined()) grad_weight = fresh_contiguous(*weight);
  return {grad_x, grad_weight};
}

// The CPU keeps channels-last images as they are; CUDA makes them contiguous.
at::MemoryFormat group_norm_format(const at::Tensor& x) {
  return dry_on(c10::kCUDA) ? at::MemoryFormat::Contiguous : x.suggest_memory_format();
}

NormResult meta_group_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                           const std::optional<at::Tensor>&, c10::SymInt batch, c10::SymInt,
                           c10::SymInt, int64_t groups, double) {
  const std::vector<int64_t> sizes = {batch.expect_int(), groups};
  const auto dtype = statistics_dtype(x, weight);
  at::Tensor y = at::empty_like(x, group_norm_format(x)), mean = fresh(sizes, x, dtype);
  return {y, mean, fresh(sizes, x, dtype)};
}

NormResult meta_group_norm_backward(const at::Tensor&, const at::Tensor& x, const at::Tensor&,
                                    const at::Tensor&, const std::optional<at::Tensor>& weight,
                                    c10::SymInt batch, c10::SymInt channels, c10::SymInt, int64_t,
                                    std::array<bool, 3> wanted) {
  at::Tensor grad_x, grad_weight, grad_bias;
  if (wanted[0]) grad_x = at::empty_like(x, group_norm_format(x));
  const int64_t c = channels.expect_int();
  const bool affine = weight && weight->defined();
  const auto dtype = affine ? weight->scalar_type() : x.scalar_type();
  if (wanted[1]) grad_weight = fresh({c}, x, dtype);
  if (wanted[2]) grad_bias = fresh({c}, x, dtype);
  if (dry_on(c10::kCPU)) {  // sums of grad * x and of grad, for each sample and channel
    Scratch sums(x);
    const int64_t wide = static_cast<int64_t>(c10::elementSize(accumulate_dtype(x.scalar_type())));
    for (int i = 0; i < 2; ++i) sums.take(batch.expect_int() * c * wide);
  }
  return {grad_x, grad_weight, grad_bias};
}

at::Tensor meta_variance(const at::Tensor& x, at::OptionalIntArrayRef dims,
                         const std::optional<at::Scalar>&, bool keep) {
  return at::sum(x, dims, keep);  // the sizes of any reduction
}

std::tuple<at::Tensor, at::Tensor> meta_variance_mean(const at::Tensor& x,
                                                      at::OptionalIntArrayRef dims,
                                                      const std::optional<at::Scalar>&, bool keep) {
  at::Tensor variance = at::sum(x, dims, keep);
  return {variance, at::sum(x, dims, keep)};
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("native_layer_norm", &meta_layer_norm);
  library.impl("native_layer_norm_backward", &meta_layer_norm_backward);
  library.impl("_fused_rms_norm", &meta_rms_norm);
  library.impl("_fused_rms_norm_backward", &meta_rms_norm_backward);
  library.impl("native_group_norm", &meta_group_norm);
  library.impl("native_group_norm_backward", &meta_group_norm_backward);
  library.impl("var.correction", &meta_variance);
  library.impl("std.correction", &meta_variance);
  library.impl("var_mean.correction", &meta_variance_mean);
  library.impl("std_mean.correction", &meta_variance_mean);
}

}  // namespace
}  // namespace braid::kernels
