// SPDX-License-Identifier: BSD-3-Clause
// Meta kernels of fused attention: q [B, H, N, D], k and v [B, H or fewer, M, D]. All lay their
// results out as [B, N, H, D] seen through a transpose.
#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "kernels/attention_op.h"
#include "kernels/meta.h"

namespace braid::kernels {
namespace {

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using FlashResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                               c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

at::Tensor by_token(const at::Tensor& like, int64_t width) {  // [B, H, N, width]
  return fresh({like.size(0), like.size(2), like.size(1), width}, like).transpose(1, 2);
}
at::Tensor by_token(const at::Tensor& like) { return by_token(like, like.size(3)); }

FlashResult meta_flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor&, double, bool,
                       bool, std::optional<double>) {
  at::Tensor y = at::empty_like(q);
  at::Tensor sums = fresh({q.size(0), q.size(1), q.size(2)}, q, c10::kFloat);
  at::Tensor seed = fresh({2}, q, c10::kUInt64), unused = fresh({}, q, c10::kUInt64);
  return {y, sums, at::Tensor(), at::Tensor(), q.size(2), k.size(2), seed, unused, fresh({0}, q)};
}

// Kernels read the gradient by token; one laid out in another way is copied first.
void take_by_token(Scratch& buffers, const at::Tensor& grad) {
  if (!grad.transpose(1, 2).is_contiguous()) buffers.take(bytes_of(grad));
}

// Row sums of grad * y and the gradient of q in fp32, both with padded rows; with shared heads
// also the gradients of k and v for every head of q.
void take_flash_backward(Scratch& buffers, const at::Tensor& q, const at::Tensor& k) {
  const int64_t rows = q.size(0) * q.size(1) * rounded_up(q.size(2), 128), width = q.size(3);
  buffers.take(4 * rows);
  buffers.take(4 * rows * rounded_up(width, width <= 128 ? 32 : 64));
  if (k.size(1) == q.size(1)) return;
  for (int i = 0; i < 2; ++i) buffers.take(bytes_of(k) / k.size(1) * q.size(1));
}

ThreeTensors meta_flash_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                 const at::Tensor& v, const at::Tensor& y, const at::Tensor&,
                                 const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt,
                                 double, bool, const at::Tensor&, const at::Tensor&,
                                 std::optional<double>) {
  Scratch buffers(q);
  at::Tensor grad_q = at::empty_like(q), grad_k = at::empty_like(k), grad_v = at::empty_like(v);
  if (!dry_on(c10::kCUDA)) return {grad_q, grad_k, grad_v};
  for (const at::Tensor& read : {grad, y}) take_by_token(buffers, read);
  take_flash_backward(buffers, q, k);
  return {grad_q, grad_k, grad_v};
}

constexpr int64_t cudnn_smallest = 256;  // bytes of workspace of any call

// braid's own operators, which models run on CUDA alone.
Attended meta_attention(const at::Tensor& q, const at::Tensor&, const at::Tensor&, bool, double) {
  at::Tensor y = at::empty_like(q);
  const auto dtype = accumulate_dtype(q.scalar_type());
  at::Tensor sums = fresh({q.size(0), q.size(1), q.size(2), 1}, q, dtype);
  if (dry_on(c10::kCUDA)) scratch(cudnn_smallest, q);
  return {y, sums};
}

// Not documented; what version 9 takes on an H200 for heads of their own, to the byte: row sums of
// grad * y and the gradient of q in fp32; and with shared heads what it needs, the gradients of k
// and v for every head of q. tests/cuda/dry_ops_test.cpp prints what is off.
void take_cudnn_backward(Scratch& buffers, const at::Tensor& q, const at::Tensor& k) {
  const int64_t rows = q.size(0) * q.size(1) * q.size(2);
  int64_t bytes = cudnn_smallest + 4 * rows + 4 * rows * q.size(3);
  if (k.size(1) != q.size(1)) bytes += 2 * bytes_of(k) / k.size(1) * q.size(1);
  buffers.take(bytes);
}

AttendedGrads meta_attention_grad(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const at::Tensor&, const at::Tensor&, bool,
                                  double) {
  Scratch buffers(q);
  AttendedGrads grads = fresh_gradients(q, k, v);
  if (!dry_on(c10::kCUDA)) return grads;
  if (grad.stride(3) != 1) buffers.take(bytes_of(grad));
  take_cudnn_backward(buffers, q, k);
  return grads;
}

FourTensors meta_efficient(const at::Tensor& q, const at::Tensor&, const at::Tensor& v, MaybeTensor,
                           bool keep_sums, double, bool, std::optional<double>) {
  at::Tensor y = by_token(q, v.size(3));
  const int64_t rows = keep_sums ? rounded_up(q.size(2), 32) : 0;
  at::Tensor sums = fresh({q.size(0), q.size(1), rows}, q, c10::kFloat);
  // Without dropout, seed and offset are scalars on the host.
  const auto host = at::TensorOptions().dtype(c10::kLong).device(c10::kCPU);
  return {y, sums, at::empty({}, host), at::empty({}, host)};
}

// The gradient of q is added up in tiles of 64 x 64 fp32 numbers with a lock of 16 bytes each.
int64_t efficient_tiles(const at::Tensor& q) {
  const int64_t tiles = rounded_up(q.size(2), 64) / 64 * (rounded_up(q.size(3), 64) / 64);
  return q.size(0) * q.size(1) * tiles * (64 * 64 * 4 + 16);
}

// Row sums of grad * y: the 16-bit kernels compute them, in fp32 they are composed.
void take_efficient_backward(Scratch& buffers, const at::Tensor& grad, const at::Tensor& q) {
  take_by_token(buffers, grad);
  const int64_t rows = q.size(0) * q.size(1) * q.size(2);
  if (q.scalar_type() == c10::kFloat) {
    Scratch composed(q);  // the product and its sums
    composed.take(bytes_of(grad));
    composed.take(4 * rows);
  }
  buffers.take(4 * rows);
  buffers.take(efficient_tiles(q));
}

FourTensors meta_efficient_backward(const at::Tensor& grad, const at::Tensor& q,
                                    const at::Tensor& k, const at::Tensor& v,
                                    const at::Tensor& bias, const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, const at::Tensor&, double,
                                    std::array<bool, 4> wanted, bool, std::optional<double>) {
  Scratch buffers(q);
  at::Tensor grad_q = by_token(q), grad_k = by_token(k), grad_v = by_token(v), grad_bias;
  if (wanted[3] && bias.defined()) grad_bias = at::empty_like(bias);
  if (dry_on(c10::kCUDA)) take_efficient_backward(buffers, grad, q);
  return {grad_q, grad_k, grad_v, grad_bias};
}

// Rows of q and of k that the CPU kernel works on at a time.
struct CpuBlock {
  int64_t rows, columns;
};
CpuBlock cpu_block(const at::Tensor& q, const at::Tensor& k) {
  const int64_t rows = q.size(2) >= 768 ? 256 : q.size(2) >= 192 ? 64 : 32;
  return {std::min(rows, q.size(2)), std::min<int64_t>(512, k.size(2))};
}

// For each thread: scores, their maxima and sums, the block of the result; 16-bit scores.
void take_cpu_forward(Scratch& buffers, const at::Tensor& q, const at::Tensor& k) {
  const CpuBlock block = cpu_block(q, k);
  const int64_t threads = at::get_num_threads(), scores = block.rows * block.columns;
  const int64_t wide = static_cast<int64_t>(c10::elementSize(accumulate_dtype(q.scalar_type())));
  buffers.take(threads * (scores + 2 * block.rows + block.rows * q.size(3)) * wide);
  if (is_half(q)) buffers.take(threads * scores * 2);
}

std::tuple<at::Tensor, at::Tensor> meta_cpu_flash(const at::Tensor& q, const at::Tensor& k,
                                                  const at::Tensor&, double, bool, MaybeTensor,
                                                  std::optional<double>) {
  at::Tensor y = at::empty_like(q);
  const auto dtype = accumulate_dtype(q.scalar_type());
  at::Tensor sums = fresh({q.size(0), q.size(2), q.size(1)}, q, dtype).transpose(1, 2);
  Scratch buffers(q);
  if (dry_on(c10::kCPU)) take_cpu_forward(buffers, q, k);
  return {y, sums};
}

// For each thread: scores and their gradients, 16-bit copies of both, and row sums (of which the
// ledger sees those of the thread that calls). A gradient that is not laid out by token is copied.
void take_cpu_backward(Scratch& buffers, const at::Tensor& grad, const at::Tensor& q,
                       const at::Tensor& k) {
  const CpuBlock block = cpu_block(q, k);
  const int64_t threads = at::get_num_threads(), scores = 2 * block.rows * block.columns;
  const int64_t wide = static_cast<int64_t>(c10::elementSize(accumulate_dtype(q.scalar_type())));
  buffers.take(threads * scores * wide);
  if (is_half(q)) buffers.take(threads * scores * 2);
  buffers.take(block.rows * wide);
  take_by_token(buffers, grad);
}

ThreeTensors meta_cpu_flash_backward(const at::Tensor& grad, const at::Tensor& q,
                                     const at::Tensor& k, const at::Tensor& v, const at::Tensor&,
                                     const at::Tensor&, double, bool, MaybeTensor,
                                     std::optional<double>) {
  at::Tensor grad_q = by_token(q), grad_k = by_token(k), grad_v = by_token(v);
  Scratch buffers(q);
  if (dry_on(c10::kCPU)) take_cpu_backward(buffers, grad, q, k);
  return {grad_q, grad_k, grad_v};
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("_scaled_dot_product_flash_attention", &meta_flash);
  library.impl("_scaled_dot_product_flash_attention_backward", &meta_flash_backward);
  library.impl("_scaled_dot_product_efficient_attention", &meta_efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", &meta_efficient_backward);
  library.impl("_scaled_dot_product_flash_attention_for_cpu", &meta_cpu_flash);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", &meta_cpu_flash_backward);
}
TORCH_LIBRARY_IMPL(braid, Meta, library) {
  library.impl("attention", &meta_attention);
  library.impl("attention_grad", &meta_attention_grad);
}

}  // namespace
}  // namespace braid::kernels
