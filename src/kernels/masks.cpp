// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/masks.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "braid/core/in_parts.h"
#include "kernels/masks_by_ops.h"

namespace braid::kernels {
namespace {

constexpr int64_t grain = 1 << 14;  // elements that are worth a thread

int64_t groups(int64_t elements, int64_t of) { return (elements + of - 1) / of; }

int64_t elements_of(at::IntArrayRef sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

at::Tensor flat_empty(int64_t elements, const at::Tensor& like, c10::ScalarType dtype) {
  return at::empty({elements}, like.options().dtype(dtype));
}

at::Tensor pack_bits_cpu(const at::Tensor& values) {
  const at::Tensor flat = values.contiguous();
  const int64_t count = flat.numel();
  at::Tensor bits = flat_empty(groups(count, 8), flat, c10::kByte);
  auto* out = bits.mutable_data_ptr<uint8_t>();
  AT_DISPATCH_ALL_TYPES_AND3(
      c10::kBool, c10::kHalf, c10::kBFloat16, flat.scalar_type(), "pack_bits", [&] {
        const auto* in = flat.const_data_ptr<scalar_t>();
        in_parts(bits.numel(), grain / 8, [&](int64_t begin, int64_t end) {
          for (int64_t byte = begin; byte < end; ++byte) {
            unsigned packed = 0;
            const int64_t here = std::min<int64_t>(8, count - byte * 8);
            for (int64_t i = 0; i < here; ++i)
              packed |= static_cast<unsigned>(!(in[byte * 8 + i] <= scalar_t(0))) << i;
            out[byte] = static_cast<uint8_t>(packed);
          }
        });
      });
  return bits;
}

at::Tensor unpack_bits_cpu(const at::Tensor& bits, at::IntArrayRef sizes) {
  at::Tensor values = at::empty(sizes, bits.options().dtype(c10::kBool));
  const auto* in = bits.const_data_ptr<uint8_t>();
  auto* out = values.mutable_data_ptr<bool>();
  in_parts(values.numel(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = ((in[i / 8] >> (i % 8)) & 1) != 0;
  });
  return values;
}

// NaN if one of them is.
template <class Scalar>
float scale_of(const Scalar* in, int64_t count) {
  using Wide = at::opmath_type<Scalar>;
  Wide largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Wide magnitude = std::abs(static_cast<Wide>(in[i]));
    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;
  }
  return static_cast<float>(largest / 127);
}

template <class Scalar>
void quantize_block(const Scalar* in, int64_t count, int8_t* codes, float& scale) {
  using Wide = at::opmath_type<Scalar>;
  scale = scale_of(in, count);
  const auto step = static_cast<Wide>(scale);
  for (int64_t i = 0; i < count; ++i) {
    const bool told = scale > 0 && std::isfinite(scale);
    const Wide code = told ? std::nearbyint(static_cast<Wide>(in[i]) / step) : Wide(0);
    codes[i] = static_cast<int8_t>(std::clamp<Wide>(code, -127, 127));
  }
}

std::tuple<at::Tensor, at::Tensor> quantize_blocks_cpu(const at::Tensor& values) {
  const at::Tensor flat = values.contiguous();
  const int64_t count = flat.numel(), blocks = groups(count, block_elements);
  at::Tensor codes = flat_empty(count, flat, c10::kChar);
  at::Tensor scales = flat_empty(blocks, flat, c10::kFloat);
  auto* code = codes.mutable_data_ptr<int8_t>();
  auto* scale = scales.mutable_data_ptr<float>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      c10::kHalf, c10::kBFloat16, flat.scalar_type(), "quantize_blocks", [&] {
        const auto* in = flat.const_data_ptr<scalar_t>();
        in_parts(blocks, grain / block_elements, [&](int64_t begin, int64_t end) {
          for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * block_elements;
            quantize_block(in + first, std::min(block_elements, count - first), code + first,
                           scale[block]);
          }
        });
      });
  return {codes, scales};
}

at::Tensor dequantize_blocks_cpu(const at::Tensor& codes, const at::Tensor& scales,
                                 c10::ScalarType dtype) {
  at::Tensor values = flat_empty(codes.numel(), codes, dtype);
  const auto* code = codes.const_data_ptr<int8_t>();
  const auto* scale = scales.const_data_ptr<float>();
  AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, dtype, "dequantize_blocks", [&] {
    using Wide = at::opmath_type<scalar_t>;
    auto* out = values.mutable_data_ptr<scalar_t>();
    in_parts(values.numel(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        out[i] = static_cast<scalar_t>(static_cast<Wide>(code[i]) *
                                       static_cast<Wide>(scale[i / block_elements]));
    });
  });
  return values;
}

at::Tensor gate_by_bits_cpu(const at::Tensor& grad, const at::Tensor& bits, double slope) {
  const at::Tensor flat = grad.contiguous();
  at::Tensor gated = at::empty(flat.sizes(), flat.options());
  const auto* bit = bits.const_data_ptr<uint8_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      c10::kHalf, c10::kBFloat16, flat.scalar_type(), "gate_by_bits", [&] {
        using Wide = at::opmath_type<scalar_t>;
        const auto* in = flat.const_data_ptr<scalar_t>();
        auto* out = gated.mutable_data_ptr<scalar_t>();
        const auto factor = static_cast<Wide>(slope);
        in_parts(flat.numel(), grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const scalar_t closed =  // 0 x infinity would not be 0
                slope == 0 ? scalar_t(0) : static_cast<scalar_t>(static_cast<Wide>(in[i]) * factor);
            out[i] = ((bit[i / 8] >> (i % 8)) & 1) != 0 ? in[i] : closed;
          }
        });
      });
  return gated;
}

// As the kernels do, they copy what is not contiguous: in a dry run that is scratch.
at::Tensor pack_bits_meta(const at::Tensor& values) {
  const at::Tensor flat = values.contiguous();
  return flat_empty(groups(values.numel(), 8), values, c10::kByte);
}
at::Tensor unpack_bits_meta(const at::Tensor& bits, at::IntArrayRef sizes) {
  TORCH_CHECK(bits.numel() == groups(elements_of(sizes), 8), "unpack_bits: ", bits.numel(),
              " bytes do not hold ", elements_of(sizes), " bits");
  return at::empty(sizes, bits.options().dtype(c10::kBool));
}
std::tuple<at::Tensor, at::Tensor> quantize_blocks_meta(const at::Tensor& values) {
  const at::Tensor flat = values.contiguous();
  const int64_t count = values.numel();
  return {flat_empty(count, values, c10::kChar),
          flat_empty(groups(count, block_elements), values, c10::kFloat)};
}
at::Tensor dequantize_blocks_meta(const at::Tensor& codes, const at::Tensor&,
                                  c10::ScalarType dtype) {
  return flat_empty(codes.numel(), codes, dtype);
}
at::Tensor gate_by_bits_meta(const at::Tensor& grad, const at::Tensor&, double) {
  const at::Tensor flat = grad.contiguous();
  return at::empty(flat.sizes(), flat.options());
}

template <class Define>
void define_masks(const Define& define) {
  define("pack_bits", "(Tensor values) -> Tensor");
  define("unpack_bits", "(Tensor bits, int[] sizes) -> Tensor");
  define("quantize_blocks", "(Tensor values) -> (Tensor, Tensor)");
  define("dequantize_blocks", "(Tensor codes, Tensor scales, ScalarType dtype) -> Tensor");
  define("gate_by_bits", "(Tensor grad, Tensor bits, float slope) -> Tensor");
}

void implement_by_ops(torch::Library& library, const std::string& ending) {
  library.impl(("pack_bits" + ending).c_str(), &pack_bits_by_ops);
  library.impl(("unpack_bits" + ending).c_str(), &unpack_bits_by_ops);
  library.impl(("quantize_blocks" + ending).c_str(), &quantize_blocks_by_ops);
  library.impl(("dequantize_blocks" + ending).c_str(), &dequantize_blocks_by_ops);
  library.impl(("gate_by_bits" + ending).c_str(), &gate_by_bits_by_ops);
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  define_masks([&](const std::string& name, const std::string& arguments) {
    library.def((name + arguments).c_str());
    library.def((name + "_by_ops" + arguments).c_str());
  });
}
TORCH_LIBRARY_IMPL(braid, CPU, library) {
  library.impl("pack_bits", &pack_bits_cpu);
  library.impl("unpack_bits", &unpack_bits_cpu);
  library.impl("quantize_blocks", &quantize_blocks_cpu);
  library.impl("dequantize_blocks", &dequantize_blocks_cpu);
  library.impl("gate_by_bits", &gate_by_bits_cpu);
}
TORCH_LIBRARY_IMPL(braid, Meta, library) {
  library.impl("pack_bits", &pack_bits_meta);
  library.impl("unpack_bits", &unpack_bits_meta);
  library.impl("quantize_blocks", &quantize_blocks_meta);
  library.impl("dequantize_blocks", &dequantize_blocks_meta);
  library.impl("gate_by_bits", &gate_by_bits_meta);
}
// For every device without a kernel of its own.
TORCH_LIBRARY_IMPL(braid, CompositeExplicitAutograd, library) {
  implement_by_ops(library, "");
  implement_by_ops(library, "_by_ops");
}

template <class Signature>
auto masks_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

at::Tensor gate_by_bits(const at::Tensor& grad, const at::Tensor& bits, double slope) {
  static const auto op =
      masks_op<at::Tensor(const at::Tensor&, const at::Tensor&, double)>("braid::gate_by_bits");
  return op.call(grad, bits, slope);
}

struct PackedRelu : torch::autograd::Function<PackedRelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double slope) {
    context->save_for_backward({pack_bits(x)});
    context->saved_data["slope"] = slope;
    return slope == 0 ? at::relu(x) : at::leaky_relu(x, slope);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const at::Tensor bits = context->get_saved_variables()[0];
    const double slope = context->saved_data["slope"].toDouble();
    return {gate_by_bits(grads[0], bits, slope), {}};
  }
};

bool differentiates(const at::Tensor& x) {
  return c10::GradMode::is_enabled() && x.requires_grad();
}

}  // namespace

at::Tensor pack_bits(const at::Tensor& values) {
  static const auto op = masks_op<at::Tensor(const at::Tensor&)>("braid::pack_bits");
  return op.call(values.detach());
}

at::Tensor unpack_bits(const at::Tensor& bits, at::IntArrayRef sizes) {
  static const auto op =
      masks_op<at::Tensor(const at::Tensor&, at::IntArrayRef)>("braid::unpack_bits");
  return op.call(bits, sizes);
}

Blocks quantize_blocks(const at::Tensor& values) {
  static const auto op =
      masks_op<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&)>("braid::quantize_blocks");
  auto [codes, scales] = op.call(values.detach());
  return {codes, scales};
}

at::Tensor dequantize_blocks(const Blocks& blocks, c10::ScalarType dtype) {
  static const auto op =
      masks_op<at::Tensor(const at::Tensor&, const at::Tensor&, c10::ScalarType)>(
          "braid::dequantize_blocks");
  return op.call(blocks.codes, blocks.scales, dtype);
}

at::Tensor relu(const at::Tensor& x, bool packed) {
  return packed && differentiates(x) ? PackedRelu::apply(x, 0.0) : at::relu(x);
}

at::Tensor leaky_relu(const at::Tensor& x, double slope, bool packed) {
  return packed && differentiates(x) ? PackedRelu::apply(x, slope) : at::leaky_relu(x, slope);
}

}  // namespace braid::kernels
