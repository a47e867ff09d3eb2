// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/bare_view.h"

#include <algorithm>
#include <vector>

namespace braid::parallel {
namespace {

std::vector<int64_t> row_major(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i > 1; --i)
    strides[i - 2] = strides[i - 1] * std::max<int64_t>(sizes[i - 1], 1);
  return strides;
}

}  // namespace

at::Tensor bare_view(const at::Tensor& flat, at::IntArrayRef sizes, int64_t first) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(flat.storage()),
                                                             flat.key_set(), flat.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, row_major(sizes),
                                                    flat.storage_offset() + first);
  return view;
}

}  // namespace braid::parallel
