// SPDX-License-Identifier: BSD-3-Clause
// Inside of watch.h: the thread beside a rank.
#pragma once
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "braid/comm/watch.h"
#include "comm/note.h"
#include "comm/sign.h"
#include "comm/store_thread.h"

namespace braid::comm {

// The text at a key; "" if there is none, or none of a rank of this job.
inline std::string text_at(const Store& store, const std::string& key) {
  if (!store.has(key)) return "";
  try {
    return store.get(key, 1);
  } catch (const ForeignText&) {
    return "";
  }
}

struct Watch::State {
  State(const Group& world, const Store& store, WatchOptions given);
  ~State();

  void set_text(const std::string& what, bool progress);
  void leave(const std::string& reason);

  using Clock = std::chrono::steady_clock;
  enum class Phase : uint8_t { calm, alarm, told, over };

  // On the thread.
  void run();
  void post_beat();
  std::optional<Alarm> heard_alarm();
  std::optional<Alarm> own_alarm();
  Sign look() const;
  static void look_at(const Note& note, const std::string& world, Sign& sign);
  void raise(const Alarm& mine);
  void say_done();
  std::string find_verdict(const Alarm& mine);
  std::string lost_store(const Alarm& mine, const Sign& answer, StoreThread::Answer asked);
  bool read_verdict(double seconds);
  bool collect(Findings& found);
  std::string claim_verdict(const Findings& found);
  std::string said_by_another(const Sign& mine) const;
  bool lower_rank_answers(const Findings& found) const;
  void tell(const std::string& line);
  void end_rank();
  void enter(Phase phase);
  bool pause(double seconds);  // true: somebody wants something

  const WatchOptions options;
  const int rank, size;
  const double beat_seconds;
  const int exceptions;     // in flight when the watch began
  const std::string place;  // of the store
  StoreThread calls;

  // What the thread of the program writes.
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Note>> notes;  // one a world
  std::string what, reason, line;
  bool complained = false;  // of a text that is no alarm
  bool left = false, ending = false, stepped = false;
  Clock::time_point progressed = Clock::now();
  Phase phase = Phase::calm;

  // What the store said last: written by its thread, which may outlive this.
  struct Seen {
    std::mutex mutex;
    std::optional<Alarm> alarm;
    std::string unreadable;  // of the text that was found instead of an alarm; "" none
    bool early = false;      // a rank that a call needs has ended
  };
  const std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  std::thread thread;  // last: uses all of the above
};

}  // namespace braid::comm
