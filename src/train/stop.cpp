// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/stop.h"

#include <csignal>
#include <cstring>

namespace braid::train {
namespace {

// A handler can reach nothing but a static object; the guard owns it.
volatile std::sig_atomic_t noted_signal = 0;
struct sigaction old_actions[3];
constexpr int watched_signals[3] = {SIGINT, SIGTERM, SIGUSR1};

void note_signal(int signal) {
  if (signal == SIGINT && noted_signal != 0) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  noted_signal = signal;
}

}  // namespace

StopSignals::StopSignals() {
  noted_signal = 0;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 3; ++i) sigaction(watched_signals[i], &action, &old_actions[i]);
}

StopSignals::~StopSignals() {
  for (int i = 0; i < 3; ++i) sigaction(watched_signals[i], &old_actions[i], nullptr);
}

bool StopSignals::asked() const { return noted_signal != 0; }

std::string StopSignals::name() const {
  const char* abbreviation = asked() ? sigabbrev_np(noted_signal) : nullptr;
  return abbreviation == nullptr ? "" : std::string("SIG") + abbreviation;
}

}  // namespace braid::train
