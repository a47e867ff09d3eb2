// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/observe.h"

namespace braid {

std::string_view to_text(MemoryKind kind) {
  static constexpr std::array<std::string_view, memory_kinds> names = {
      "parameter",  "gradient",  "optimizer state", "master weight", "input",
      "activation", "temporary", "communication",   "workspace",     "other"};
  return names[static_cast<size_t>(kind)];
}

Observer* observer() {
  return static_cast<Observer*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO));
}

}  // namespace braid
