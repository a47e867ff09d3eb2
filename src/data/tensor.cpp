// SPDX-License-Identifier: BSD-3-Clause
#include "data/tensor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>

namespace braid::data {

at::Tensor empty_tensor(const std::vector<int64_t>& shape, c10::ScalarType dtype,
                        c10::Device device) {
  return at::empty(shape, at::TensorOptions().dtype(dtype).device(device));
}

std::vector<int64_t> random_permutation(int64_t size, uint64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor order = at::randperm(size, generator, at::TensorOptions().dtype(at::kLong));
  const auto* first = order.const_data_ptr<int64_t>();
  return {first, first + size};
}

}  // namespace braid::data
