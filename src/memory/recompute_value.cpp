// SPDX-License-Identifier: BSD-3-Clause
#include "memory/recompute_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "braid/core/dry.h"

namespace braid::memory {
namespace {

uint64_t mixed(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
  return sum ^ (sum >> 29);
}

uint64_t mixed_bytes(uint64_t sum, const char* data, size_t bytes) {
  for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), data += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data, sizeof(word));
    sum = mixed(sum, word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, data, bytes);
  return bytes == 0 ? sum : mixed(sum, rest);
}

// Through the strides, so that looking at a value takes no memory.
uint64_t mixed_elements(uint64_t sum, const at::Tensor& host, const char* data, int64_t dim) {
  const auto size = static_cast<int64_t>(host.element_size());
  if (dim == host.dim()) return mixed_bytes(sum, data, static_cast<size_t>(size));
  if (dim + 1 == host.dim() && host.stride(dim) == 1)
    return mixed_bytes(sum, data, static_cast<size_t>(host.size(dim) * size));
  for (int64_t i = 0; i < host.size(dim); ++i)
    sum = mixed_elements(sum, host, data + i * host.stride(dim) * size, dim + 1);
  return sum;
}

}  // namespace

uint64_t checksum(const at::Tensor& tensor) {
  if (!has_data(tensor) || tensor.layout() != c10::kStrided || tensor.numel() == 0) return 0;
  const at::Tensor host = tensor.is_cpu() ? tensor : tensor.cpu();
  return mixed_elements(1, host, static_cast<const char*>(host.const_data_ptr()), 0);
}

ValueMark mark_of(const at::Tensor& value, bool with_bits) {
  return {.sizes = value.sizes().vec(),
          .dtype = value.scalar_type(),
          .device = value.device(),
          .bits = with_bits ? checksum(value) : 0};
}

std::string to_text(const ValueMark& mark) {
  return fmt::format("{} [{}] on {}", c10::toString(mark.dtype), fmt::join(mark.sizes, ", "),
                     mark.device.str());
}

Version::Version(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_inference()) return;
  counter_ = tensor.unsafeGetTensorImpl()->version_counter();
  then_ = counter_.current_version();
}

}  // namespace braid::memory
