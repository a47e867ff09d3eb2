// SPDX-License-Identifier: BSD-3-Clause
// Ctrl-C, SIGTERM, SIGUSR1, SIGHUP (unless nohup ignores it) and SIGXCPU (ulimit -t) ask a run to
// finish its step, save and leave; a second Ctrl-C ends it at once.
#pragma once
#include <string>

namespace braid::train {

// While it lives, these signals are noted instead of ending the process. SIGXFSZ and SIGPIPE are
// ignored, so that a file at its size limit and a console without a reader are errors of a write,
// which the run can answer. One guard at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool asked() const;
  std::string name() const;  // SIGINT, SIGTERM, ..., or ""
};

}  // namespace braid::train
