// SPDX-License-Identifier: BSD-3-Clause
// Small whole numbers that differ from rank to rank: their sums are exact in every dtype.
#pragma once
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

namespace braid::test {

inline at::Tensor values(int rank, at::IntArrayRef sizes,
                         const at::TensorOptions& like = at::kFloat) {
  const int64_t count = c10::multiply_integers(sizes);
  return at::arange(count, at::kLong)
      .mul(7)
      .add(5 * rank + 3)
      .remainder(11)
      .sub(5)
      .view(sizes)
      .to(like);
}

inline std::vector<at::Tensor> values_of_ranks(int ranks, at::IntArrayRef sizes,
                                               const at::TensorOptions& like) {
  std::vector<at::Tensor> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(values(rank, sizes, like));
  return result;
}

}  // namespace braid::test
