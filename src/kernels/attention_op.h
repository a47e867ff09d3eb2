// SPDX-License-Identifier: BSD-3-Clause
// braid::attention and braid::attention_grad: attention by cuDNN on CUDA, as a node of the backward
// pass that lays gradients out as the layer before wants them. q [B, H, N, D]; k and v [B, H or
// fewer, M, D].
//
//   at::Tensor y = attend(q, k, v, causal, scale);   // laid out like q
#pragma once
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace braid::kernels {

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                  double scale);

using Attended = std::tuple<at::Tensor, at::Tensor>;  // the result; log of sums [B, H, N, 1]
using AttendedGrads = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Whether q, k, v are parts of the tokens [B, N, all heads of q, k and v] of one tensor, in that
// order.
inline bool lie_in_one(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  int64_t end = q.storage_offset();
  for (const at::Tensor* x : {&q, &k, &v}) {
    if (x->storage().unsafeGetStorageImpl() != q.storage().unsafeGetStorageImpl() ||
        x->storage_offset() != end || x->size(2) != q.size(2) || x->stride(0) != q.stride(0) ||
        x->stride(1) != x->size(3) || x->stride(2) != q.stride(2) || x->stride(3) != 1)
      return false;
    end += x->size(1) * x->size(3);
  }
  return true;
}

// Uninitialised gradients: parts of one tensor if q, k, v are, else each like what it belongs to.
inline AttendedGrads fresh_gradients(const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v) {
  if (!lie_in_one(q, k, v)) return {at::empty_like(q), at::empty_like(k), at::empty_like(v)};
  const int64_t heads = q.size(1) + k.size(1) + v.size(1);
  const at::Tensor whole = at::empty({q.size(0), q.size(2), heads, q.size(3)}, q.options());
  const auto part = [&](int64_t first, const at::Tensor& like) {
    return whole.narrow(2, first, like.size(1)).transpose(1, 2);
  };
  return {part(0, q), part(q.size(1), k), part(q.size(1) + k.size(1), v)};
}

}  // namespace braid::kernels
