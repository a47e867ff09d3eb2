// SPDX-License-Identifier: BSD-3-Clause
// One update of Adam or AdamW over any number of tensors, in one pass over their memory: gradients
// of another dtype, a loss scale or clipping, and the copy of a master weight in the dtype of the
// model cost no pass of their own.
//
//   kernels::adam({.targets = {w}, .grads = {g}, .exp_avgs = {m}, .exp_avg_sqs = {v},
//                  .weights = {}, .steps = {step}}, {.lr = 3e-4, .decay = 0.1});
//
// Computed in fp64 for fp64 targets, else in fp32. The moments have the dtype of the target.
#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

// Of one device, and each list of one dtype; the tensors of one index have the same elements in the
// same order of memory, without gaps.
struct AdamTensors {
  std::vector<at::Tensor> targets = {};  // what is updated
  std::vector<at::Tensor> grads = {};    // only read
  std::vector<at::Tensor> exp_avgs = {}, exp_avg_sqs = {};
  std::vector<at::Tensor> weights = {};  // get the values of the targets, or none
  std::vector<at::Tensor> steps = {};    // fp32 scalars: which update of the target this is, from 1
};

struct AdamNumbers {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double decay = 0;
  bool decoupled = true;  // AdamW: decay is taken off the weight; else it is added to the gradient
  // Scalars on the device of the targets, or undefined.
  at::Tensor lr_there = {};   // fp64; instead of lr
  at::Tensor factor = {};     // gradients are multiplied by it
  at::Tensor found_inf = {};  // not 0: nothing changes
};

void adam(const AdamTensors& tensors, const AdamNumbers& numbers);

}  // namespace braid::kernels
