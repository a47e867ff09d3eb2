// SPDX-License-Identifier: BSD-3-Clause
// Turns hangs and lost ranks into one sentence and an end: a thread beside each rank that tells the
// others what the rank does, and finds out who is to blame when a collective does not end.
//
//   comm::Watch watch(world, store, {.timeouts = {.collective = 60}});
//   watch.progress("step 17");   // once a step; watch.note("backward") in between
//   // braid: no answer for 60 s: all_reduce sum Float [4096] of group data (call 17): rank 2 did
//   // not arrive; it last did: step 5, forward (no sign of life for 58 s)
//
// One rank prints the line, and every rank ends with exit code 5 within the timeout plus 5 s, also
// if its own thread is stuck. Store calls are made by threads of the watch only: a program pays a
// lock and a string.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "braid/comm/group.h"
#include "braid/comm/store.h"

namespace braid::comm {

// In seconds; each less than the next, so that the innermost one speaks first. 0: none.
struct Timeouts {
  double store = 20;        // an answer of the store
  double collective = 300;  // a call that a rank waits for
  double step = 1800;       // from one progress() to the next
  double start = 3600;      // from the start to the first progress()
};

struct WatchOptions {
  Timeouts timeouts = {};
  int store_rank = 0;  // whose process serves the store; -1: none of them does
  std::function<void(const std::string&)> report = {};  // gets the line; unset: stderr
  std::function<void(int)> exit = {};                   // ends this rank; unset: std::_Exit
};

class Watch {
 public:
  // Watches `world` and all groups split off it, before or later. All ranks make one, with stores
  // that show the same board; the watch makes its own connection.
  Watch(const Group& world, const Store& store, WatchOptions options = {});
  // Tells the others that this rank is done, or, when an exception passes, that it left.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Watches another world of the same ranks, too: that of another backend. All ranks do so alike.
  void add(const Group& world);

  void note(const std::string& what);  // what the program does now: "backward"
  // The same, and the step timeout begins anew: also in a long evaluation or while saving.
  void progress(const std::string& what);
  // This rank ends because of an error: "loss is nan". Call it in the handler, before the process
  // ends. Comes back when the others know and the line is printed (at most 4 s); from then on the
  // program has a second to end by itself.
  void leave(const std::string& reason);
  // The line that was reported, here or by another rank; "" while all is well. A program that has
  // it need not print its own CommError, which may blame the wrong rank.
  std::string verdict() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::comm
