// SPDX-License-Identifier: BSD-3-Clause
// Lets a backend that moves CPU memory take GPU tensors: they go through page-locked host memory.
//
//   return staged(std::make_shared<Gloo>(...));
//
// The host waits for the copy to it before a call begins; wait() copies back on the current stream.
#pragma once
#include <memory>

#include "braid/comm/backend.h"

namespace braid::comm {

std::shared_ptr<Backend> staged(std::shared_ptr<Backend> inner);

}  // namespace braid::comm
