// SPDX-License-Identifier: BSD-3-Clause
// CUDA graphs behind core/accelerator.h.
#pragma once
#include <memory>

#include "braid/core/accelerator.h"

namespace braid::cuda {

std::unique_ptr<CapturePool> make_capture_pool(int device);

}  // namespace braid::cuda
