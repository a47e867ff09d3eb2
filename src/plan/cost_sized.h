// SPDX-License-Identifier: BSD-3-Clause
// An operator as the kernel and sizes that its time depends on: what curves are measured at and
// looked up by.
#pragma once
#include <string>
#include <vector>

#include "braid/memory/operator_log.h"
#include "plan/cost_class.h"
#include "plan/cost_roofline.h"

namespace braid::plan {

struct Sized {
  Work work = Work::view;
  std::string kernel;  // gemm_nt, attention_flash_causal, pointwise, ...
  c10::ScalarType dtype = c10::kFloat;
  std::vector<double> at;  // sizes; empty: nothing runs
  int kernels = 1;         // launches
  double beside = 0;       // bytes that it writes besides
};

// Throws InternalError with the name of an operator that no class is known for.
Sized sized_of(const memory::Operator& op);

// Which class a curve belongs to, by the beginning of its name; view: none.
Work work_of(const std::string& kernel);
// How many numbers `at` has for it.
size_t sizes_of(Work work);

// Seconds by the roofline at these sizes.
double estimate(const Roofline& roofline, const Sized& sized);

}  // namespace braid::plan
