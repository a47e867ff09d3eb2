// SPDX-License-Identifier: BSD-3-Clause
// Ctrl-C, SIGTERM and SIGUSR1 ask a run to finish its step, save and leave; a second Ctrl-C ends it
// at once.
#pragma once
#include <string>

namespace braid::train {

// While it lives, the three signals are noted instead of ending the process. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool asked() const;
  std::string name() const;  // SIGINT, SIGTERM, SIGUSR1, or ""
};

}  // namespace braid::train
