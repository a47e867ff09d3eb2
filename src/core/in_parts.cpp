// SPDX-License-Identifier: BSD-3-Clause
// at::parallel_for is a template: in code that is compiled without OpenMP it is a plain loop, and a
// second OpenMP runtime beside torch's own would fight it for the cores. An iterator over bytes
// that nobody reads lends us the loop inside of libtorch.
#include "braid/core/in_parts.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>

namespace braid {

void in_parts(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  if (count <= grain || at::get_num_threads() == 1 || at::in_parallel_region())
    return body(0, count);
  char origin = 0;
  const at::Tensor numbers = at::from_blob(&origin, {count}, c10::kByte);
  at::TensorIterator iterator = at::TensorIteratorConfig()
                                    .set_check_mem_overlap(false)
                                    .check_all_same_dtype(false)
                                    .resize_outputs(false)
                                    .add_const_input(numbers)
                                    .build();
  iterator.for_each(
      [&](char** data, const int64_t* strides, int64_t size, int64_t rows) {
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t begin = data[0] + row * strides[1] - &origin;
          body(begin, begin + size);
        }
      },
      grain);
}

}  // namespace braid
