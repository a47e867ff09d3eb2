// SPDX-License-Identifier: BSD-3-Clause
// braid::attention on CUDA (kernels/attention_op.h). What cuDNN does not take from us is left to
// torch's operator, whose gradients are copied to where ours belong.
#include "cuda/attention.h"

#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "kernels/attention_op.h"

namespace braid::cuda {
namespace {

using at::Tensor;
using kernels::Attended;
using kernels::AttendedGrads;

Attended attention_cuda(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                        double scale) {
  const c10::cuda::CUDAGuard guard(q.device());
  const Tensor out = at::empty_like(q);
  const Tensor sums =
      at::empty({q.size(0), q.size(1), q.size(2), 1}, q.options().dtype(at::kFloat));
  if (attend_by_cudnn(
          {.q = q, .k = k, .v = v, .out = out, .sums = sums, .causal = causal, .scale = scale}))
    return {out, sums};
  const auto found = at::_scaled_dot_product_cudnn_attention(
      q, k, v, {}, /*compute_log_sumexp=*/true, 0.0, causal, false, scale);
  return {std::get<0>(found), std::get<1>(found)};
}

AttendedGrads grads_by_torch(const AttentionTensors& all) {
  const Tensor none, unused = at::empty({}, all.q.options().dtype(at::kLong));
  return at::_scaled_dot_product_cudnn_attention_backward(
      all.grad, all.q, all.k, all.v, all.out, all.sums, unused, unused, none, none, none,
      all.q.size(2), all.k.size(2), 0.0, all.causal, all.scale);
}

AttendedGrads attention_grad_cuda(const Tensor& grad, const Tensor& q, const Tensor& k,
                                  const Tensor& v, const Tensor& out, const Tensor& sums,
                                  bool causal, double scale) {
  const c10::cuda::CUDAGuard guard(q.device());
  const AttendedGrads grads = kernels::fresh_gradients(q, k, v);
  const auto& [to_q, to_k, to_v] = grads;
  const AttentionTensors all = {.q = q,
                                .k = k,
                                .v = v,
                                .out = out,
                                .sums = sums,
                                .grad = grad.stride(3) == 1 ? grad : grad.contiguous(),
                                .to_q = to_q,
                                .to_k = to_k,
                                .to_v = to_v,
                                .causal = causal,
                                .scale = scale};
  if (attend_by_cudnn(all)) return grads;
  const AttendedGrads found = grads_by_torch(all);
  if (!kernels::lie_in_one(q, k, v)) return found;
  to_q.copy_(std::get<0>(found));
  to_k.copy_(std::get<1>(found));
  to_v.copy_(std::get<2>(found));
  return grads;
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("attention", &attention_cuda);
  library.impl("attention_grad", &attention_grad_cuda);
}

}  // namespace
}  // namespace braid::cuda
