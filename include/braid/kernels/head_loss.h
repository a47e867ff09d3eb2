// SPDX-License-Identifier: BSD-3-Clause
// The last layer of a language model and its cross-entropy together: the scores of a few thousand
// rows at a time are made, turned into their gradient where they stand, multiplied into the
// gradients of input and weight, and forgotten. The scores of all rows are never there.
//
//   at::Tensor sum = kernels::head_loss(x, weight, target, {.ignored = -100});
//   sum.div(counted).backward();      // x.grad() and weight.grad() are scaled, not computed again
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

struct HeadLossOptions {
  int64_t ignored = -100;  // rows with this target count nothing
  // The gradient that the sum will get is taken to be scale / (number of counted targets), so that
  // 16 bits hold what is made of it. Any other is right, too, but costs a pass over the gradients.
  at::Tensor scale = {};  // device scalar; undefined: 1
  int64_t rows = 0;       // at a time; 0: head_rows()
};

// Sum of the cross-entropies of x W^T over the rows that count: a scalar in fp32, or fp64 for an x
// of fp64. x [rows, width] in the dtype of the products, weight [classes, width] in its own (its
// gradient too; sums of many rows are fp32 for an fp32 weight), target [rows] int64.
at::Tensor head_loss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& target,
                     const HeadLossOptions& options);

// Rows whose scores are there at a time: enough for products at full speed, at most 1.6 GiB.
int64_t head_rows(int64_t rows, int64_t classes, int64_t element_bytes);

// Its parts. Cross-entropy of each row of scores [rows, classes], whose last dimension is dense,
// into losses [rows]; the scores become their gradient times `weight`, a scalar.
void cross_entropy_in_place(const at::Tensor& scores, const at::Tensor& losses,
                            const at::Tensor& target, const at::Tensor& weight, int64_t ignored);
// x, without gaps, times a scalar (fp64 for an x of fp64, else fp32) in place; a factor of 1 moves
// no memory.
void scale_in_place(const at::Tensor& x, const at::Tensor& factor);

}  // namespace braid::kernels
