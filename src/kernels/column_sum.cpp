// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/column_sum.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "braid/core/in_parts.h"
#include "kernels/meta.h"
#include "kernels/wide.h"

namespace braid::kernels {
namespace {

constexpr int64_t stretch = 128;  // rows whose sum is added to that of those before

// Of one stretch; columns side by side.
template <class Scalar, class Wide>
void sum_stretch(const at::Tensor& x, int64_t first, Wide* sum) {
  const int64_t width = x.size(1), last = std::min(first + stretch, x.size(0));
  const int64_t apart = x.stride(1);
  for (int64_t row = first; row < last; ++row) {
    const Scalar* in = x.const_data_ptr<Scalar>() + row * x.stride(0);
    if (apart == 1)
      widest([&] { along(width, [&](int64_t i) { sum[i] += static_cast<Wide>(in[i]); }); });
    else
      for (int64_t i = 0; i < width; ++i) sum[i] += static_cast<Wide>(in[i * apart]);
  }
}

template <class Scalar, class Out>
void sum_all_columns(const at::Tensor& x, Out* out) {
  using Wide = at::opmath_type<Scalar>;
  const int64_t width = x.size(1), stretches = (x.size(0) + stretch - 1) / stretch;
  std::vector<Wide> sums(static_cast<size_t>(stretches * width));
  in_parts(stretches, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      sum_stretch<Scalar, Wide>(x, i * stretch, sums.data() + i * width);
  });
  for (int64_t i = 1; i < stretches; ++i)
    for (int64_t c = 0; c < width; ++c)
      sums[static_cast<size_t>(c)] += sums[static_cast<size_t>(i * width + c)];
  for (int64_t c = 0; c < width && stretches > 0; ++c)
    out[c] = static_cast<Out>(sums[static_cast<size_t>(c)]);
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def("column_sum(Tensor x, ScalarType dtype) -> Tensor");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) { library.impl("column_sum", &column_sum_cpu); }
TORCH_LIBRARY_IMPL(braid, Meta, library) { library.impl("column_sum", &column_sum_meta); }

}  // namespace

at::Tensor column_sum_cpu(const at::Tensor& x, c10::ScalarType dtype) {
  at::Tensor sum = at::zeros({x.size(1)}, x.options().dtype(dtype));
  AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, dtype, "column_sum", [&] {
    using out_t = scalar_t;
    auto* out = sum.mutable_data_ptr<out_t>();
    AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, x.scalar_type(), "column_sum",
                                    [&] { sum_all_columns<scalar_t, out_t>(x, out); });
  });
  return sum;
}

at::Tensor column_sum_meta(const at::Tensor& x, c10::ScalarType dtype) {
  const at::Tensor sum = fresh({x.size(1)}, x, dtype);
  const int64_t element = x.scalar_type() == c10::kDouble ? 8 : 4;
  if (dry_on(c10::kCUDA) && x.numel() > 0)
    scratch(sum_stretches(x.size(0), x.size(1)) * x.size(1) * element, x);
  return sum;
}

at::Tensor column_sum(const at::Tensor& x, c10::ScalarType dtype) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::column_sum", "")
                             .typed<at::Tensor(const at::Tensor&, c10::ScalarType)>();
  return op.call(x, dtype);
}

}  // namespace braid::kernels
