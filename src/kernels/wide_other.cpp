// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/wide.h"

namespace braid::kernels {

Instructions widest_instructions() { return Instructions::any; }

}  // namespace braid::kernels
