// SPDX-License-Identifier: BSD-3-Clause
// The threads of a network library take over the instruments of whoever starts a call: they would
// write into them while the step does, or after it has put them away. So a call starts without.
#pragma once
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <utility>

namespace braid::comm {

class Unobserved {
 public:
  Unobserved() : before_(c10::ThreadLocalDebugInfo::current()) {
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
  }
  ~Unobserved() { c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(std::move(before_)); }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;

 private:
  std::shared_ptr<c10::ThreadLocalDebugInfo> before_;
};

}  // namespace braid::comm
