// SPDX-License-Identifier: BSD-3-Clause
// Meta kernels of operators that move elements: indexing, rolling, padding, pooling, counting.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

at::Tensor meta_index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) sizes[c10::maybe_wrap_dim(dim, self.dim())] = index.numel();
  return fresh(sizes, self);
}

at::Tensor meta_embedding_dense_backward(const at::Tensor& grad, const at::Tensor& indices,
                                         c10::SymInt entries, c10::SymInt, bool) {
  const at::Tensor flat = dry_on(c10::kCPU) ? grad.contiguous() : grad;  // a copy if it has gaps
  return fresh({entries.expect_int(), grad.size(-1)}, grad);
}

at::Tensor rolled_once(const at::Tensor& self, int64_t shift, int64_t dim) {
  const int64_t size = self.size(dim), start = ((size - shift) % size + size) % size;
  if (dry_on(c10::kCUDA)) {  // one kernel that wants a contiguous input
    const at::Tensor flat = self.contiguous();
    return fresh_contiguous(flat);
  }
  return at::cat({self.narrow(dim, start, size - start), self.narrow(dim, 0, start)}, dim);
}

// Backends roll one dimension after the other, so a copy is alive beside the result.
at::Tensor meta_roll(const at::Tensor& self, c10::SymIntArrayRef shifts, at::IntArrayRef dims) {
  if (self.numel() == 0) return self.clone(at::MemoryFormat::Preserve);
  const std::vector<int64_t> steps = ints(shifts);
  if (dims.empty())
    return rolled_once(self.contiguous().view(-1), steps.at(0), 0).view(self.sizes());
  at::Tensor result = self;
  for (size_t i = 0; i < dims.size(); ++i) result = rolled_once(result, steps.at(i), dims[i]);
  return result;
}

at::Tensor meta_flip(const at::Tensor& self, at::IntArrayRef) {
  return at::empty_like(self, at::MemoryFormat::Preserve);
}

// Without values the longest possible answer is unknown; `minlength` bounds what may be counted.
at::Tensor meta_bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights,
                         c10::SymInt minlength) {
  const int64_t bins = minlength.expect_int();
  if (!weights || !weights->defined()) return fresh({bins}, self, c10::kLong);
  return fresh({bins}, self, weights->scalar_type() == c10::kFloat ? c10::kFloat : c10::kDouble);
}

at::Tensor meta_pad2d(const at::Tensor& self, c10::SymIntArrayRef padding) {
  const std::vector<int64_t> pad = ints(padding);
  std::vector<int64_t> sizes = self.sizes().vec();
  const size_t n = sizes.size();
  sizes[n - 1] += pad[0] + pad[1];
  sizes[n - 2] += pad[2] + pad[3];
  const bool image = self.dim() == 4 && !dry_on(c10::kCUDA);
  return at::empty(sizes, self.options().memory_format(image ? self.suggest_memory_format()
                                                             : at::MemoryFormat::Contiguous));
}

at::Tensor meta_pad2d_backward(const at::Tensor&, const at::Tensor& self, c10::SymIntArrayRef) {
  const bool image = self.dim() == 4 && !dry_on(c10::kCUDA);
  return at::empty_like(self, image ? self.suggest_memory_format() : at::MemoryFormat::Contiguous);
}

at::Tensor meta_average_pool(const at::Tensor& self, c10::SymIntArrayRef output) {
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[sizes.size() - 2] = output[0].expect_int();
  sizes[sizes.size() - 1] = output[1].expect_int();
  return at::empty(sizes, self.options().memory_format(self.suggest_memory_format()));
}

at::Tensor meta_average_pool_backward(const at::Tensor&, const at::Tensor& self) {
  return at::empty_like(self, self.suggest_memory_format());
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("index_select", &meta_index_select);
  library.impl("embedding_dense_backward", &meta_embedding_dense_backward);
  library.impl("roll", &meta_roll);
  library.impl("flip", &meta_flip);
  library.impl("bincount", &meta_bincount);
  library.impl("reflection_pad2d", &meta_pad2d);
  library.impl("reflection_pad2d_backward", &meta_pad2d_backward);
  library.impl("replication_pad2d_backward", &meta_pad2d_backward);
  library.impl("_adaptive_avg_pool2d", &meta_average_pool);
  library.impl("_adaptive_avg_pool2d_backward", &meta_average_pool_backward);
}

}  // namespace
}  // namespace braid::kernels
