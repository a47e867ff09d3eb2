// SPDX-License-Identifier: BSD-3-Clause
// Saved variables of autograd under the eyes of the ledger.
#pragma once

namespace braid::memory {

// From the first call on, the autograd engine of the process tells which tensors it keeps for the
// backward pass, on threads with a ledger. Others see no difference.
void watch_saved_variables();

}  // namespace braid::memory
