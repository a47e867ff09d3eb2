// SPDX-License-Identifier: BSD-3-Clause
// The instructions that loops of kernels/wide.h may run in here, each to be tested.
#pragma once
#include <vector>

#include "kernels/wide.h"

namespace braid::test {

inline std::vector<kernels::Instructions> instructions_here() {
  using kernels::Instructions;
  std::vector<Instructions> all;
  for (const Instructions one : {Instructions::any, Instructions::avx2, Instructions::avx512})
    if (one <= kernels::widest_instructions()) all.push_back(one);
  return all;
}

}  // namespace braid::test
