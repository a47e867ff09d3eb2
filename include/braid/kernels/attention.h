// SPDX-License-Identifier: BSD-3-Clause
// Attention that names the kernel itself, so that a dry run sees the operator the device will run.
//
//   y = kernels::attention(q, k, v, {.causal = true});  // q [B, H, N, D]; k, v [B, <= H, M, D]
//
// With fewer heads in k and v, each serves H / heads(k) neighbouring heads of q. Computed in the
// dtype of q; sums and softmax inside are fp32 or better. By cuDNN, the gradients of q, k, v that
// are parts of one tensor, token by token, are so, too (kernels/parts.h).
#pragma once
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "braid/kernels/dropout.h"

namespace braid::kernels {

struct AttentionOptions {
  bool causal = false;               // position i sees positions <= i; needs N == M
  std::optional<double> scale = {};  // of the scores; D^-0.5 unless given
  Drop drop = {};                    // of the attention weights
  bool cudnn = true;                 // may run cuDNN's kernel; false: as torch chooses by itself
};

enum class AttentionKernel { flash_cpu, flash_cuda, cudnn_cuda, efficient_cuda, written_out };

// What `attention` runs for these tensors: a function of their sizes and dtypes, so that a dry run
// and every step choose alike. On CUDA in 16 bits cuDNN's kernel, wherever it has one: on an H200
// it was faster than flash for all head widths from 48 to 256, causal or not, by 1.3 to 1.7 times.
// Flash for fewer than 64 tokens, for head widths above 128 before Hopper, and if the process asked
// torch for deterministic algorithms (at::globalContext()): cuDNN's backward pass adds in any
// order.
AttentionKernel attention_kernel(const at::Tensor& q, const at::Tensor& v,
                                 const AttentionOptions& options);
std::string_view to_text(AttentionKernel kernel);

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionOptions& options = {});

}  // namespace braid::kernels
