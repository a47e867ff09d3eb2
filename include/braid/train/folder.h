// SPDX-License-Identifier: BSD-3-Clause
// The folder of a run: which one it is, and that one process alone writes into it.
//
//   train::RunFolder folder(options, train::Use::fresh);   // throws ConfigError, StorageError
//   options = train::numbered(options, folder.number());   // run.name may be my-2 now
//
// A fresh run takes the first free one of my, my-2, my-3, ... A folder is free if no process has
// it and no run has left checkpoints or steps there.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "braid/train/options.h"

namespace braid::train {

enum class Use : uint8_t {
  fresh,    // a new run
  resume,   // goes on with the run that is there; waits for a process that is still ending
  profile,  // adds files beside the run that is there
};

// The options of a run with that number: run.name, and run.dir if it is set, end in -2, -3, ...
RunOptions numbered(RunOptions options, int64_t number);

// Checkpoints or steps of a run are in this folder. Throws StorageError if that cannot be seen.
bool holds_run(const std::string& dir);

class RunFolder {
 public:
  RunFolder();  // none
  // Makes the folder and takes its lock, for as long as this object lives.
  RunFolder(const RunOptions& options, Use use);
  ~RunFolder();
  RunFolder(RunFolder&&) noexcept;
  RunFolder& operator=(RunFolder&&) noexcept;

  int64_t number() const;           // 1: the folder is the one that the options name
  const std::string& note() const;  // why it is another one; empty if it is not
  // Throws ConfigError if another process has taken the folder over.
  void check() const;
  // Ranks that this process starts from now on hold the folder, too.
  void hold_in_children();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::train
