// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/context_kernel.h"

#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>

namespace braid::parallel {
namespace {

using kernels::AttentionKernel;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr double block_infinity = std::numeric_limits<double>::infinity();

double block_scale(const at::Tensor& q, const kernels::AttentionOptions& how) {
  return how.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
}

// Each head serves `times` neighbouring heads of q; and the way back for gradients.
at::Tensor heads_spread(const at::Tensor& x, int64_t times) {
  return times == 1 ? x : x.repeat_interleave(times, 1);
}
at::Tensor heads_summed(const at::Tensor& x, int64_t times) {
  return times == 1 ? x : x.unflatten(1, {-1, times}).sum(2);
}

c10::ScalarType written_dtype(const at::Tensor& q) {
  return q.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat;
}

// Scores of the block in fp32 or better, those that are hidden -inf.
at::Tensor written_scores(const at::Tensor& q, const at::Tensor& k,
                          const kernels::AttentionOptions& how) {
  const auto dtype = written_dtype(q);
  at::Tensor scores =
      at::matmul(q.to(dtype).mul(block_scale(q, how)), k.to(dtype).transpose(-2, -1));
  if (how.causal) {
    const auto bools = scores.options().dtype(c10::kBool);
    scores.masked_fill_(at::ones({q.size(2), k.size(2)}, bools).triu_(1), -block_infinity);
  }
  return scores;
}

at::Tensor dropped_weights(const at::Tensor& weights, const kernels::AttentionOptions& how) {
  return how.drop.rate > 0 ? kernels::dropout(weights, how.drop) : weights;
}

std::tuple<at::Tensor, at::Tensor> written_block(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v,
                                                 const kernels::AttentionOptions& how) {
  const at::Tensor scores = written_scores(q, k, how);
  const at::Tensor lse = at::logsumexp(scores, {-1});
  const at::Tensor weights = scores.sub(lse.unsqueeze(-1)).exp_();
  return {at::matmul(dropped_weights(weights, how), v.to(scores.scalar_type())), lse};
}

// With P the weights, M the mask of dropout: dV = (P M)^T dO, dS = P (M dO V^T - sum(dO O)).
ThreeTensors written_block_backward(const KernelSaved& saved,
                                    const kernels::AttentionOptions& how) {
  const auto dtype = written_dtype(saved.q);
  const at::Tensor grad = saved.grad_out.to(dtype), k = saved.k.to(dtype), v = saved.v.to(dtype);
  const at::Tensor weights =
      written_scores(saved.q, saved.k, how).sub_(saved.lse.unsqueeze(-1)).exp_();
  const at::Tensor dv = at::matmul(dropped_weights(weights, how).transpose(-2, -1), grad);
  const at::Tensor common = grad.mul(saved.out.to(dtype)).sum({-1}, /*keepdim=*/true);
  const at::Tensor ds =
      dropped_weights(at::matmul(grad, v.transpose(-2, -1)), how).sub_(common).mul_(weights);
  ds.mul_(block_scale(saved.q, how));
  return {at::matmul(ds, k), at::matmul(ds.transpose(-2, -1), saved.q.to(dtype)), dv};
}

// Flash where cuDNN would be chosen, which takes no sums of other blocks.
AttentionKernel block_kernel(const at::Tensor& q, const at::Tensor& v,
                             kernels::AttentionOptions how) {
  how.cudnn = false;
  return kernels::attention_kernel(q, v, how);
}

at::Tensor no_seed(const at::Tensor& q) {  // of masks that the kernel would draw: there are none
  return at::empty({2}, q.options().dtype(c10::kLong));
}

ThreeTensors flash_cuda_backward(const KernelSaved& s, const kernels::AttentionOptions& how) {
  return at::_scaled_dot_product_flash_attention_backward(
      s.grad_out, s.q, s.k, s.v, s.out, s.lse.contiguous(), {}, {}, s.q.size(2), s.k.size(2), 0.0,
      how.causal, no_seed(s.q), no_seed(s.q), block_scale(s.q, how));
}

// The kernel reads rows of 32 queries.
at::Tensor padded_lse(const at::Tensor& lse) {
  const int64_t queries = lse.size(2), padded = (queries + 31) / 32 * 32;
  at::Tensor whole = at::full({lse.size(0), lse.size(1), padded}, block_infinity, lse.options());
  whole.narrow(2, 0, queries).copy_(lse);
  return whole;
}

ThreeTensors efficient_cuda_backward(const KernelSaved& s, const kernels::AttentionOptions& how) {
  const auto [dq, dk, dv, none] = at::_scaled_dot_product_efficient_attention_backward(
      s.grad_out, s.q, s.k, s.v, {}, s.out, padded_lse(s.lse), no_seed(s.q), no_seed(s.q), 0.0,
      {true, true, true, false}, how.causal, block_scale(s.q, how));
  return {dq, dk, dv};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attend_block(const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v,
                                                const kernels::AttentionOptions& how) {
  const double scale = block_scale(q, how);
  const bool causal = how.causal;
  const int64_t times = q.size(1) / k.size(1);
  switch (block_kernel(q, v, how)) {  // flash reads shared heads in place
    case AttentionKernel::flash_cpu:
      return at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, {}, scale);
    case AttentionKernel::flash_cuda: {
      const auto all = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal, false, scale);
      return {std::get<0>(all), std::get<1>(all)};
    }
    case AttentionKernel::efficient_cuda: {
      const auto all = at::_scaled_dot_product_efficient_attention(
          q, heads_spread(k, times), heads_spread(v, times), {}, true, 0.0, causal, scale);
      return {std::get<0>(all), std::get<1>(all).narrow(2, 0, q.size(2))};
    }
    case AttentionKernel::cudnn_cuda:
    case AttentionKernel::written_out:
      break;
  }
  return written_block(q, heads_spread(k, times), heads_spread(v, times), how);
}

ThreeTensors attend_block_backward(const KernelSaved& given, const kernels::AttentionOptions& how) {
  const AttentionKernel kernel = block_kernel(given.q, given.v, how);
  if (kernel == AttentionKernel::flash_cpu)
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        given.grad_out, given.q, given.k, given.v, given.out, given.lse, 0.0, how.causal, {},
        block_scale(given.q, how));
  if (kernel == AttentionKernel::flash_cuda) return flash_cuda_backward(given, how);
  const int64_t times = given.q.size(1) / given.k.size(1);
  KernelSaved saved = given;
  saved.k = heads_spread(given.k, times);
  saved.v = heads_spread(given.v, times);
  const auto [dq, dk, dv] = kernel == AttentionKernel::efficient_cuda
                                ? efficient_cuda_backward(saved, how)
                                : written_block_backward(saved, how);
  return {dq, heads_summed(dk, times), heads_summed(dv, times)};
}

}  // namespace braid::parallel
