// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/column_sum.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <array>

#include "braid/core/in_parts.h"
#include "kernels/meta.h"

namespace braid::kernels {
namespace {

constexpr int64_t lane = 64;       // columns that are summed side by side
constexpr int64_t stretch = 1024;  // rows whose sum is added to that of those before

template <class Scalar, class Out>
void sum_lane(const at::Tensor& x, int64_t first, int64_t count, Out* out) {
  using Wide = at::opmath_type<Scalar>;
  const auto* in = x.const_data_ptr<Scalar>();
  std::array<Wide, lane> all = {};
  for (int64_t begin = 0; begin < x.size(0); begin += stretch) {
    std::array<Wide, lane> some = {};
    for (int64_t row = begin; row < std::min(begin + stretch, x.size(0)); ++row)
      for (int64_t i = 0; i < count; ++i)
        some[static_cast<size_t>(i)] +=
            static_cast<Wide>(in[row * x.stride(0) + (first + i) * x.stride(1)]);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) all[i] += some[i];
  }
  for (int64_t i = 0; i < count; ++i)
    out[first + i] = static_cast<Out>(all[static_cast<size_t>(i)]);
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def("column_sum(Tensor x, ScalarType dtype) -> Tensor");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) { library.impl("column_sum", &column_sum_cpu); }
TORCH_LIBRARY_IMPL(braid, Meta, library) { library.impl("column_sum", &column_sum_meta); }

}  // namespace

at::Tensor column_sum_cpu(const at::Tensor& x, c10::ScalarType dtype) {
  const int64_t width = x.size(1), lanes = (width + lane - 1) / lane;
  at::Tensor sum = at::zeros({width}, x.options().dtype(dtype));
  AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, dtype, "column_sum", [&] {
    using out_t = scalar_t;
    auto* out = sum.mutable_data_ptr<out_t>();
    AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, x.scalar_type(), "column_sum", [&] {
      in_parts(lanes, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          sum_lane<scalar_t, out_t>(x, i * lane, std::min(lane, width - i * lane), out);
      });
    });
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
