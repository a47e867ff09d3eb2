// SPDX-License-Identifier: BSD-3-Clause
// Gloo writes to sockets in a way that raises SIGPIPE when the peer has ended: without a word, the
// signal would end this rank, too. Within a guard the write fails with an error instead. Threads
// started within one keep that for life.
#pragma once
#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace braid::comm {

class PipeGuard {
 public:
  PipeGuard() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeGuard() {
    if (sigismember(&before_, SIGPIPE) != 0) return;
    const timespec at_once = {};
    while (sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) continue;  // raised by our writes
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PipeGuard(const PipeGuard&) = delete;
  PipeGuard& operator=(const PipeGuard&) = delete;

 private:
  sigset_t pipe_ = {}, before_ = {};
};

}  // namespace braid::comm
