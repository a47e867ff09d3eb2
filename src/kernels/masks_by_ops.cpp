// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/masks_by_ops.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "braid/kernels/masks.h"

namespace braid::kernels {
namespace {

// [groups, width], the last one filled up with zeros.
at::Tensor in_groups(const at::Tensor& values, int64_t width) {
  const at::Tensor flat = values.reshape({-1});
  const int64_t missing = (width - flat.numel() % width) % width;
  return (missing == 0 ? flat : at::constant_pad_nd(flat, {0, missing})).view({-1, width});
}

at::Tensor eight_shifts(const at::Tensor& like) {
  return at::arange(8, like.options().dtype(c10::kByte));
}

c10::ScalarType wide_of(c10::ScalarType dtype) {
  return dtype == c10::kDouble ? c10::kDouble : c10::kFloat;
}

}  // namespace

at::Tensor pack_bits_by_ops(const at::Tensor& values) {
  const at::Tensor ones = values.le(0).logical_not_().to(c10::kByte);
  return in_groups(ones, 8)
      .bitwise_left_shift(eight_shifts(ones))
      .sum(at::IntArrayRef{1}, /*keepdim=*/false, c10::kByte);
}

at::Tensor unpack_bits_by_ops(const at::Tensor& bits, at::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return bits.unsqueeze(1)
      .bitwise_right_shift(eight_shifts(bits))
      .bitwise_and_(1)
      .to(c10::kBool)
      .view({-1})
      .narrow(0, 0, count)
      .reshape(sizes);
}

std::tuple<at::Tensor, at::Tensor> quantize_blocks_by_ops(const at::Tensor& values) {
  const at::Tensor blocks = in_groups(values, block_elements).to(wide_of(values.scalar_type()));
  const at::Tensor scales = blocks.abs().amax(1).div_(127).to(c10::kFloat);
  const at::Tensor step = scales.to(blocks.scalar_type()).unsqueeze(1);
  const at::Tensor told = step.gt(0).logical_and_(step.isfinite());
  const at::Tensor codes =
      at::where(told, blocks.div(step).round_(), at::zeros({}, blocks.options()));
  return {codes.clamp_(-127, 127).to(c10::kChar).view({-1}).narrow(0, 0, values.numel()).clone(),
          scales};
}

at::Tensor dequantize_blocks_by_ops(const at::Tensor& codes, const at::Tensor& scales,
                                    c10::ScalarType dtype) {
  const c10::ScalarType wide = wide_of(dtype);
  return in_groups(codes.to(wide), block_elements)
      .mul(scales.to(wide).unsqueeze(1))
      .view({-1})
      .narrow(0, 0, codes.numel())
      .to(dtype, /*non_blocking=*/false, /*copy=*/true);
}

at::Tensor gate_by_bits_by_ops(const at::Tensor& grad, const at::Tensor& bits, double slope) {
  const at::Tensor open = unpack_bits_by_ops(bits, grad.sizes());
  return at::where(open, grad, slope == 0 ? at::zeros({}, grad.options()) : grad.mul(slope));
}

}  // namespace braid::kernels
