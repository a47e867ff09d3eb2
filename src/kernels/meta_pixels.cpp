// SPDX-License-Identifier: BSD-3-Clause
// Meta kernels of pixel shuffles: the CPU has kernels of its own, which keep a channels-last
// format; other devices reorder dimensions and copy.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

// [..., C, H, W] with the last three sizes given.
std::vector<int64_t> with_image(const at::Tensor& x, int64_t channels, int64_t rows,
                                int64_t columns) {
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end() - 3);
  for (const int64_t size : {channels, rows, columns}) sizes.push_back(size);
  return sizes;
}

at::Tensor shuffled(const at::Tensor& x, const std::vector<int64_t>& sizes) {
  const bool keeps = !dry_on(c10::kCUDA) && x.dim() == 4;
  const auto format = keeps ? x.suggest_memory_format() : at::MemoryFormat::Contiguous;
  return at::empty(sizes, x.options().memory_format(format));
}

at::Tensor meta_pixel_shuffle(const at::Tensor& x, int64_t by) {
  return shuffled(x, with_image(x, x.size(-3) / (by * by), x.size(-2) * by, x.size(-1) * by));
}

at::Tensor meta_pixel_unshuffle(const at::Tensor& x, int64_t by) {
  return shuffled(x, with_image(x, x.size(-3) * by * by, x.size(-2) / by, x.size(-1) / by));
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("pixel_shuffle", &meta_pixel_shuffle);
  library.impl("pixel_unshuffle", &meta_pixel_unshuffle);
}

}  // namespace
}  // namespace braid::kernels
