// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/fp8.h"

#include <ATen/Dispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "braid/core/in_parts.h"
#include "kernels/fp8_codes.h"

namespace braid::kernels {
namespace {

using PlainAndTurned = std::tuple<at::Tensor, at::Tensor>;

template <class Scalar>
float largest_of(const Scalar* in, int64_t count) {
  float most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(static_cast<float>(in[i])));
  return most;
}

at::Tensor fp8_scale_cpu(at::TensorList parts, bool e5m2) {
  at::Tensor scale = at::full({1, 1}, smallest_scale, parts[0].options().dtype(c10::kFloat));
  float& most = *scale.mutable_data_ptr<float>();
  const auto per_step = static_cast<float>(1 / largest_code(e5m2));
  for (const at::Tensor& part : parts)
    AT_DISPATCH_FLOATING_TYPES_AND2(
        c10::kHalf, c10::kBFloat16, part.scalar_type(), "fp8_scale", [&] {
          const auto* in = part.const_data_ptr<scalar_t>();
          for (int64_t row = 0; row < part.size(0); ++row)
            most = std::max(most, per_step * largest_of(in + row * part.stride(0), part.size(1)));
        });
  return scale;
}

template <class Code>
Code code_cpu(float x, float largest) {
  return std::isnan(x) ? Code(x) : Code(std::clamp(x, -largest, largest));
}

// Where the codes of one part go; strides of rows and columns.
template <class Code>
struct CodePlace {
  Code* data = nullptr;
  int64_t row = 0, column = 0;
};

template <class Scalar, class Code>
void write_codes_cpu(const at::Tensor& part, float inverse, const CodePlace<Code>& plain,
                     const CodePlace<Code>& turned) {
  const auto* in = part.const_data_ptr<Scalar>();
  const auto largest = static_cast<float>(largest_code(std::is_same_v<Code, c10::Float8_e5m2>));
  in_parts(part.size(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t column = 0; column < part.size(1); ++column) {
        const float x = static_cast<float>(in[row * part.stride(0) + column]) * inverse;
        const auto code = code_cpu<Code>(x, largest);
        if (plain.data != nullptr) plain.data[row * plain.row + column * plain.column] = code;
        if (turned.data != nullptr) turned.data[row * turned.row + column * turned.column] = code;
      }
  });
}

template <class Code>
PlainAndTurned codes_cpu_as(at::TensorList parts, int64_t dim, float scale,
                            const PlainAndTurned& out) {
  const auto& [rows, columns] = out;
  int64_t first = 0;
  for (const at::Tensor& part : parts) {
    CodePlace<Code> plain, turned;
    if (rows.numel() > 0)
      plain = {rows.mutable_data_ptr<Code>() + first * rows.stride(static_cast<int>(dim)),
               rows.stride(0), 1};
    if (columns.numel() > 0)
      turned = {
          columns.mutable_data_ptr<Code>() + first * columns.stride(1 - static_cast<int>(dim)), 1,
          columns.stride(0)};
    AT_DISPATCH_FLOATING_TYPES_AND2(
        c10::kHalf, c10::kBFloat16, part.scalar_type(), "fp8_codes",
        [&] { write_codes_cpu<scalar_t, Code>(part, 1 / scale, plain, turned); });
    first += part.size(dim);
  }
  return out;
}

PlainAndTurned fp8_codes_cpu(at::TensorList parts, int64_t dim, const at::Tensor& scale, bool e5m2,
                             bool plain, bool turned) {
  const PlainAndTurned out = empty_codes(parts, dim, e5m2, plain, turned);
  const float step = *scale.const_data_ptr<float>();
  return e5m2 ? codes_cpu_as<c10::Float8_e5m2>(parts, dim, step, out)
              : codes_cpu_as<c10::Float8_e4m3fn>(parts, dim, step, out);
}

void write_rows_cpu(const at::Tensor& x, c10::Float8_e4m3fn* to, float* steps) {
  AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, x.scalar_type(), "fp8_rows", [&] {
    for (int64_t row = 0; row < x.size(0); ++row) {
      const auto* in = x.const_data_ptr<scalar_t>() + row * x.stride(0);
      steps[row] = std::max(largest_of(in, x.size(1)) * static_cast<float>(1 / largest_e4m3),
                            static_cast<float>(smallest_scale));
      const float inverse = 1 / steps[row];
      for (int64_t i = 0; i < x.size(1); ++i)
        to[row * x.size(1) + i] = code_cpu<c10::Float8_e4m3fn>(static_cast<float>(in[i]) * inverse,
                                                               static_cast<float>(largest_e4m3));
    }
  });
}

std::tuple<at::Tensor, at::Tensor> fp8_rows_cpu(at::TensorList parts) {
  const auto out = empty_row_codes(parts);
  const auto& [codes, scales] = out;
  int64_t first = 0;
  for (const at::Tensor& part : parts) {
    write_rows_cpu(part, codes.mutable_data_ptr<c10::Float8_e4m3fn>() + first * codes.size(1),
                   scales.mutable_data_ptr<float>() + first);
    first += part.size(0);
  }
  return out;
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def("fp8_scale(Tensor[] parts, bool e5m2) -> Tensor");
  library.def(
      "fp8_codes(Tensor[] parts, int dim, Tensor scale, bool e5m2, bool plain, bool turned) -> "
      "(Tensor, Tensor)");
  library.def("fp8_rows(Tensor[] parts) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(braid, CPU, library) {
  library.impl("fp8_scale", &fp8_scale_cpu);
  library.impl("fp8_codes", &fp8_codes_cpu);
  library.impl("fp8_rows", &fp8_rows_cpu);
}

TORCH_LIBRARY_IMPL(braid, Meta, library) {
  library.impl("fp8_scale", [](at::TensorList parts, bool) {
    return at::empty({1, 1}, parts[0].options().dtype(c10::kFloat));
  });
  library.impl("fp8_codes",
               [](at::TensorList parts, int64_t dim, const at::Tensor&, bool e5m2, bool plain,
                  bool turned) { return empty_codes(parts, dim, e5m2, plain, turned); });
  library.impl("fp8_rows", &empty_row_codes);
}

template <class Signature>
c10::TypedOperatorHandle<Signature> fp8_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
}

}  // namespace

Coded coded(const std::vector<at::Tensor>& parts, const CodedOptions& options) {
  static const auto scale_op = fp8_op<at::Tensor(at::TensorList, bool)>("braid::fp8_scale");
  static const auto codes_op =
      fp8_op<PlainAndTurned(at::TensorList, int64_t, const at::Tensor&, bool, bool, bool)>(
          "braid::fp8_codes");
  Coded result;
  result.scale = options.scale.defined() ? options.scale : scale_op.call(parts, options.e5m2);
  std::tie(result.plain, result.turned) =
      codes_op.call(parts, options.dim, result.scale, options.e5m2, options.plain, options.turned);
  return result;
}

Coded coded_rows(const std::vector<at::Tensor>& parts) {
  static const auto op =
      fp8_op<std::tuple<at::Tensor, at::Tensor>(at::TensorList)>("braid::fp8_rows");
  Coded result;
  std::tie(result.plain, result.scale) = op.call(parts);
  return result;
}

at::Tensor coded_product(const CodedFactors& f, const CodedResult& result) {
  if (f.a.is_cuda()) {
    std::optional<at::Tensor> bias;
    if (result.bias.defined()) bias = result.bias;
    return at::_scaled_mm(f.a, f.b, f.scale_a, f.scale_b, bias, {}, result.dtype, result.fast);
  }
  at::Tensor y = f.a.to(c10::kFloat).mul_(f.scale_a).mm(f.b.to(c10::kFloat).mul_(f.scale_b));
  if (result.bias.defined()) y.add_(result.bias);
  return y.to(result.dtype);
}

}  // namespace braid::kernels
