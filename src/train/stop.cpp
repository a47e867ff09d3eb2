// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/stop.h"

#include <array>
#include <csignal>
#include <cstring>

namespace braid::train {
namespace {

// A handler can reach nothing but a static object; the guard owns it.
volatile std::sig_atomic_t noted_signal = 0;

void note_signal(int signal) {
  if (signal == SIGINT && noted_signal != 0) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  noted_signal = signal;
}

struct WatchedSignal {
  int signal;
  bool asks;  // else it is ignored
};
constexpr std::array<WatchedSignal, 7> watched_signals = {{
    {SIGINT, true},
    {SIGTERM, true},
    {SIGUSR1, true},
    {SIGHUP, true},    // the terminal is gone
    {SIGXCPU, true},   // ulimit -t: comes again each second until the hard limit kills
    {SIGXFSZ, false},  // ulimit -f: the write fails with EFBIG instead
    {SIGPIPE, false},  // the reader of the console is gone: likewise, with EPIPE
}};
std::array<struct sigaction, watched_signals.size()> old_actions;

}  // namespace

StopSignals::StopSignals() {
  noted_signal = 0;
  for (size_t i = 0; i < watched_signals.size(); ++i) {
    const auto [signal, asks] = watched_signals[i];
    struct sigaction action = {};
    action.sa_handler = asks ? note_signal : SIG_IGN;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, &old_actions[i]);
    const bool by_nohup = signal == SIGHUP && old_actions[i].sa_handler == SIG_IGN;
    if (by_nohup) sigaction(signal, &old_actions[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < watched_signals.size(); ++i)
    sigaction(watched_signals[i].signal, &old_actions[i], nullptr);
}

bool StopSignals::asked() const { return noted_signal != 0; }

std::string StopSignals::name() const {
  const char* abbreviation = asked() ? sigabbrev_np(noted_signal) : nullptr;
  return abbreviation == nullptr ? "" : std::string("SIG") + abbreviation;
}

}  // namespace braid::train
