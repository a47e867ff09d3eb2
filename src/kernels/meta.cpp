// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/meta.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>

#include "braid/core/dry.h"

namespace braid::kernels {

bool dry_on(c10::DeviceType device) { return dry_device() == device; }

void scratch(int64_t bytes, const at::Tensor& like) { Scratch(like).take(bytes); }

void Scratch::take(int64_t bytes) { held_.push_back(at::empty({bytes}, options_)); }

Casts::Casts(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out)
    : Casts(at::result_type(a, b), {a, b, out}) {}

Casts::Casts(c10::ScalarType common, std::initializer_list<at::Tensor> tensors)
    : held_(*tensors.begin()) {
  if (!dry_on(c10::kCPU)) return;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.scalar_type() != common)
      held_.take(tensor.numel() * static_cast<int64_t>(c10::elementSize(common)));
}

at::Tensor fresh(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options());
}

at::Tensor fresh(at::IntArrayRef sizes, const at::Tensor& like, c10::ScalarType dtype) {
  return at::empty(sizes, like.options().dtype(dtype));
}

at::Tensor fresh_contiguous(const at::Tensor& like) {
  return at::empty_like(like, at::MemoryFormat::Contiguous);
}

at::Tensor pointwise(std::initializer_list<at::Tensor> inputs, c10::ScalarType dtype) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .check_all_same_device(false)
      .declare_static_dtype_and_device(dtype, c10::kMeta)
      .add_owned_output(at::Tensor());
  for (const at::Tensor& input : inputs) config.add_owned_const_input(input);
  return config.build().output();
}

std::vector<int64_t> ints(c10::SymIntArrayRef symbols) {
  std::vector<int64_t> values;
  for (const c10::SymInt& symbol : symbols) values.push_back(symbol.expect_int());
  return values;
}

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace braid::kernels
