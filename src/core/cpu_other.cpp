// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/cpu.h"

namespace braid {

std::string avoid_broken_amx() { return ""; }  // AMX is x86's alone

}  // namespace braid
