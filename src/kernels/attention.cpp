// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include "braid/core/accelerator.h"
#include "kernels/attention_op.h"
#include "kernels/dtype.h"

namespace braid::kernels {
namespace {

constexpr int hopper = 90;

// A dry run without a device stands for the newest kind.
int device_generation(const at::Tensor& x) {
  if (accelerator() == nullptr) return hopper;
  return accelerator()->generation(std::max<int>(0, x.device().index()));
}

// Of tensors that flash can take, too.
bool takes_cudnn(const at::Tensor& q, const at::Tensor& v, const AttentionOptions& options) {
  constexpr int64_t shortest = 64, widest = 128;
  if (!options.cudnn || q.size(2) < shortest || v.size(2) < shortest) return false;
  if (at::globalContext().deterministicAlgorithms()) return false;
  return q.size(3) <= widest || device_generation(q) == hopper;
}

AttentionKernel attention_kernel_cuda(const at::Tensor& q, const at::Tensor& v,
                                      const AttentionOptions& options) {
  const int64_t width = q.size(3);
  if (is_half(q) && width % 8 == 0 && width <= 256)
    return takes_cudnn(q, v, options) ? AttentionKernel::cudnn_cuda : AttentionKernel::flash_cuda;
  const bool aligned = width % (is_half(q) ? 8 : 4) == 0;  // rows are read 16 bytes at a time
  if (q.scalar_type() != c10::kDouble && aligned) return AttentionKernel::efficient_cuda;
  return AttentionKernel::written_out;
}

// Each head of k serves `times` neighbouring heads of q.
at::Tensor spread_heads(const at::Tensor& x, int64_t times) {
  if (times == 1) return x;
  const auto b = x.size(0), h = x.size(1), n = x.size(2), d = x.size(3);
  return x.unsqueeze(2).expand({b, h, times, n, d}).reshape({b, h * times, n, d});
}

at::Tensor attention_written_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionOptions& options, double scale) {
  at::Tensor scores = at::matmul(q.mul(scale), k.transpose(-2, -1));  // [B, H, N, M]
  if (options.causal) {
    const at::Tensor later =
        at::ones({q.size(2), k.size(2)}, q.options().dtype(c10::kBool)).triu_(1);
    scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
  }
  at::Tensor weights = at::softmax(scores, -1);
  if (options.drop.rate > 0) weights = dropout(weights, options.drop);
  return at::matmul(weights, v);
}

}  // namespace

AttentionKernel attention_kernel(const at::Tensor& q, const at::Tensor& v,
                                 const AttentionOptions& options) {
  // The fused kernels draw their own dropout masks, which would depend on how a batch is split.
  if (options.drop.rate > 0 || q.size(3) != v.size(3)) return AttentionKernel::written_out;
  if (q.is_cpu() && q.scalar_type() != c10::kHalf) return AttentionKernel::flash_cpu;
  if (q.is_cuda()) return attention_kernel_cuda(q, v, options);
  return AttentionKernel::written_out;
}

std::string_view to_text(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::flash_cpu:
      return "flash (CPU)";
    case AttentionKernel::flash_cuda:
      return "flash (CUDA)";
    case AttentionKernel::cudnn_cuda:
      return "cuDNN";
    case AttentionKernel::efficient_cuda:
      return "memory-efficient (CUDA)";
    case AttentionKernel::written_out:
      break;
  }
  return "written out";
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionOptions& options) {
  const int64_t times = q.size(1) / k.size(1);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  switch (attention_kernel(q, v, options)) {  // flash and cuDNN read shared heads in place
    case AttentionKernel::flash_cpu:
      return std::get<0>(
          at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, options.causal, {}, scale));
    case AttentionKernel::flash_cuda:
      return std::get<0>(
          at::_scaled_dot_product_flash_attention(q, k, v, 0.0, options.causal, false, scale));
    case AttentionKernel::cudnn_cuda:
      return attend(q, k, v, options.causal, scale);
    case AttentionKernel::efficient_cuda:
      return std::get<0>(at::_scaled_dot_product_efficient_attention(
          q, spread_heads(k, times), spread_heads(v, times), {}, /*compute_log_sumexp=*/true, 0.0,
          options.causal, scale));
    case AttentionKernel::written_out:
      break;
  }
  return attention_written_out(q, spread_heads(k, times), spread_heads(v, times), options, scale);
}

}  // namespace braid::kernels
