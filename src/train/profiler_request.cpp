// SPDX-License-Identifier: BSD-3-Clause
#include "train/profiler_request.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <mutex>
#include <system_error>

#include "braid/train/profiler.h"

namespace braid::train {
namespace {

// A handler can reach nothing but a static object; the guards own it together.
volatile std::sig_atomic_t profile_asked = 0;
std::mutex profile_guards_mutex;
int profile_guards = 0;
struct sigaction before_profile_guards;

void note_profile_signal(int) { profile_asked = 1; }

// The file system of a cluster is not asked more often than this.
constexpr std::chrono::milliseconds look_again(250);

}  // namespace

ProfileSignal::ProfileSignal() {
  const std::lock_guard lock(profile_guards_mutex);
  if (profile_guards++ > 0) return;
  profile_asked = 0;
  struct sigaction action = {};
  action.sa_handler = note_profile_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, &before_profile_guards);
}

ProfileSignal::~ProfileSignal() {
  const std::lock_guard lock(profile_guards_mutex);
  if (--profile_guards == 0) sigaction(SIGUSR2, &before_profile_guards, nullptr);
}

ProfileRequests::ProfileRequests(const std::filesystem::path& run_dir, bool looks)
    : file_(run_dir / "profile.request"), looks_(looks) {}

int64_t ProfileRequests::from_file(int64_t usual) {
  const auto now = std::chrono::steady_clock::now();
  if (!looks_ || now - looked_ < look_again) return 0;
  looked_ = now;
  std::error_code none;
  if (!std::filesystem::exists(file_, none)) return 0;
  int64_t steps = 0;
  std::ifstream(file_) >> steps;
  std::filesystem::remove(file_, none);
  return steps > 0 ? steps : usual;
}

int64_t ProfileRequests::take(int64_t usual) {
  const int64_t by_file = from_file(usual);
  if (profile_asked == 0) return by_file;
  profile_asked = 0;
  return std::max(by_file, usual);
}

}  // namespace braid::train
