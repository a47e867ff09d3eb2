// SPDX-License-Identifier: BSD-3-Clause
// A virtual clock: how long a schedule would take, from the durations of its parts, without running
// them.
//
//   comm::VirtualClock clock(2, [](comm::Kind, int64_t bytes, int) { return 1e-6 + bytes / 1e9; });
//   comm::Group world(comm::clocked(clock, rank));  // on every rank, a thread each or all from one
//   clock.run(rank, "compute", 2.0, "F0");          // takes 2 s of virtual time on a stream
//   clock.makespan();                               // when all ranks have said what they do
//
// Streams of a rank run side by side; what is on one stream runs in order. A call through a clocked
// group begins after what its rank has on the compute stream, runs on a stream of its own, and
// Pending::wait() lets the compute stream wait for it: as on a GPU. No thread ever blocks; times
// are worked out at the end, and a schedule that cannot end (a recv without send, a rank that stays
// away, a circle) is named then.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "braid/comm/backend.h"

namespace braid::comm {

// Seconds that a collective of this size takes on `ranks` ranks; a message is asked as (send,
// bytes, 2).
using CostFunction = std::function<double(Kind kind, int64_t bytes, int ranks)>;

struct ClockSpan {
  int rank = 0;
  std::string stream = {}, label = {};
  double begin = 0, end = 0;  // seconds
  bool operator==(const ClockSpan&) const = default;
};

struct ClockMark {  // a point on a stream
  int64_t node = -1;
};

class VirtualClock {
 public:
  explicit VirtualClock(int ranks, CostFunction cost = {});  // no cost: communication takes no time

  int ranks() const;
  void run(int rank, const std::string& stream, double seconds, const std::string& label);
  ClockMark record(int rank, const std::string& stream);
  void wait(int rank, const std::string& stream,
            ClockMark mark);  // what follows on the stream does

  // These throw CommError if something of it cannot end.
  double now(int rank, const std::string& stream) const;  // the end of what is on the stream so far
  double makespan() const;                                // the end of everything
  std::vector<ClockSpan> spans() const;                   // in the order of their begin

  struct State;
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;  // copies are the same clock
};

struct ClockStreams {
  std::string compute = "compute";  // issues the calls and waits for them
  std::string collective = "comm";
  std::string send = "send";  // a recv that waits for its message does not hold up a send
  std::string recv = "recv";
};

// A collective begins when its last rank has come. A send takes its time on the sender's stream;
// the recv ends at the later of the receiver's time and the end of the send. Tensors get what
// comm::dry gives them.
std::shared_ptr<Backend> clocked(const VirtualClock& clock, int rank, ClockStreams streams = {});

}  // namespace braid::comm
