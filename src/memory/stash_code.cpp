// SPDX-License-Identifier: BSD-3-Clause
#include "memory/stash_code.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <tuple>

namespace braid::memory {
namespace {

// Operators of the kernels module, which is a neighbour: they are asked for by name.
template <class Signature>
auto stash_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

at::Tensor to_bits(const at::Tensor& flat) {
  static const auto op = stash_op<at::Tensor(const at::Tensor&)>("braid::pack_bits");
  return op.call(flat);
}

at::Tensor from_bits(const at::Tensor& bits, int64_t elements) {
  static const auto op =
      stash_op<at::Tensor(const at::Tensor&, at::IntArrayRef)>("braid::unpack_bits");
  return op.call(bits, {elements});
}

std::vector<at::Tensor> to_int8(const at::Tensor& flat) {
  static const auto op =
      stash_op<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&)>("braid::quantize_blocks");
  auto [codes, scales] = op.call(flat);
  return {codes, scales};
}

at::Tensor from_int8(const std::vector<at::Tensor>& parts, c10::ScalarType dtype) {
  static const auto op =
      stash_op<at::Tensor(const at::Tensor&, const at::Tensor&, c10::ScalarType)>(
          "braid::dequantize_blocks");
  return op.call(parts[0], parts[1], dtype);
}

// Means and deviations of norms, sums of exponentials: one for a whole row, so few bytes, and an
// error in one is an error in all of the row.
bool is_statistic(const at::Tensor& value) { return value.dim() < 2 || value.size(-1) == 1; }

}  // namespace

Code code_of(const at::Tensor& value, const StashOptions& options) {
  const c10::ScalarType dtype = value.scalar_type();
  if (dtype == c10::kBool) return options.pack_masks ? Code::bits : Code::as_is;
  if (!c10::isFloatingType(dtype) || is_statistic(value)) return Code::as_is;
  if (options.format == StashFormat::int8) return Code::int8;
  if (options.format == StashFormat::bf16 && value.element_size() >= 4) return Code::bf16;
  return Code::as_is;
}

std::vector<at::Tensor> encode(const at::Tensor& flat, Code code) {
  switch (code) {
    case Code::bf16:
      return {flat.to(c10::kBFloat16)};
    case Code::int8:
      return to_int8(flat);
    case Code::bits:
      return {to_bits(flat)};
    case Code::as_is:
      break;
  }
  return {flat};
}

at::Tensor decode(const std::vector<at::Tensor>& parts, Code code, c10::ScalarType dtype,
                  int64_t elements) {
  switch (code) {
    case Code::bf16:
      return parts[0].to(dtype);
    case Code::int8:
      return from_int8(parts, dtype);
    case Code::bits:
      return from_bits(parts[0], elements);
    case Code::as_is:
      break;
  }
  return parts[0];
}

}  // namespace braid::memory
