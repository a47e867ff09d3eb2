// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/linear_gradients.h"

#include <ATen/ops/mm.h>

#include "kernels/column_sum.h"
#include "kernels/rows.h"

namespace braid::kernels {
namespace {

// CUDA multiplies bf16 and writes fp32; elsewhere the factors are widened first.
at::Tensor product_in(const at::Tensor& a, const at::Tensor& b, c10::ScalarType dtype) {
  if (a.scalar_type() == dtype) return a.mm(b);
  if (dtype != c10::kFloat) return a.mm(b).to(dtype);
  if (a.is_cuda()) return at::mm(a, b, dtype);
  return a.to(dtype).mm(b.to(dtype));
}

}  // namespace

bool lies_by_rows(const at::Tensor& weight) {
  return weight.stride(1) == 1 && weight.stride(0) == weight.size(1);
}

at::Tensor weight_gradient(const at::Tensor& grad, const at::Tensor& x, bool by_rows,
                           c10::ScalarType dtype) {
  const at::Tensor g = as_rows(grad), rows = as_rows(x);
  return by_rows ? product_in(g.t(), rows, dtype) : product_in(rows.t(), g, dtype).t();
}

at::Tensor bias_gradient(const at::Tensor& grad, c10::ScalarType dtype) {
  return column_sum(as_rows(grad), dtype);
}

// As autograd's own: the gradient of an x that lies by columns does so, too.
at::Tensor input_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor g = as_rows(grad), rows = as_rows(x);
  const bool by_columns = rows.stride(0) == 1 && rows.stride(1) == rows.size(0);
  const at::Tensor dx = by_columns ? weight.t().mm(g.t()).t() : g.mm(weight);
  return dx.view(x.sizes());
}

}  // namespace braid::kernels
