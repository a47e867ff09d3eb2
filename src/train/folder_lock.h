// SPDX-License-Identifier: BSD-3-Clause
// One process writes into a run folder; the file run.lock there says which.
//
//   FolderLock lock("runs/my", {.wait = 20});   // throws FolderInUse
//   lock.check();                               // throws FolderInUse if another one took it over
//
// The kernel releases flock when the last process that holds it is gone, also after kill -9. Some
// network disks give flock to one host only: there the owner's heartbeat in the file counts.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "braid/core/error.h"

namespace braid::train {

struct LockOptions {
  double wait = 0;             // seconds that another process may take to end
  double beat = 5;             // seconds between two heartbeats
  double silence = 15;         // seconds without one after which an owner elsewhere is gone
  std::string elsewhere = {};  // the fix: what to type for another folder
  std::function<void(const std::string&)> say = {};  // that it waits; empty: to stderr
};

struct FolderInUse : ConfigError {
  using ConfigError::ConfigError;
};

class FolderLock {
 public:
  FolderLock(const std::filesystem::path& dir, LockOptions options);  // of a folder that exists
  ~FolderLock();                                                      // removes the file
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  void check() const;
  // Processes that this one starts from now on hold the lock, too, until the last of them is gone.
  void hold_in_children();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::train
