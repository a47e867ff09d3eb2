// SPDX-License-Identifier: BSD-3-Clause
// Threads started within a guard get no signals: these belong to the program's own thread.
#pragma once
#include <pthread.h>
#include <signal.h>

namespace braid::comm {

class QuietSignals {
 public:
  QuietSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~QuietSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;

 private:
  sigset_t before_ = {};
};

}  // namespace braid::comm
