// SPDX-License-Identifier: BSD-3-Clause
// What is remembered of a value that is not kept, to know it again.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace braid::memory {

struct ValueMark {
  std::vector<int64_t> sizes;
  c10::ScalarType dtype = c10::kFloat;
  c10::Device device = c10::kCPU;
  uint64_t bits = 0;  // checksum; 0: not looked at
  bool operator==(const ValueMark&) const = default;
};

ValueMark mark_of(const at::Tensor& value, bool with_bits);
std::string to_text(const ValueMark& mark);  // Float [4, 8] on cpu

// Of all elements and their order, bit by bit; 0 of tensors without data.
uint64_t checksum(const at::Tensor& tensor);

// Tells whether a tensor is written to later on.
class Version {
 public:
  Version() = default;
  explicit Version(const at::Tensor& tensor);
  bool changed() const { return counter_.enabled() && counter_.current_version() != then_; }

 private:
  c10::VariableVersion counter_ = c10::VariableVersion(c10::VariableVersion::DISABLED);
  uint32_t then_ = 0;
};

}  // namespace braid::memory
