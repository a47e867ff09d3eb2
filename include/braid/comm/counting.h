// SPDX-License-Identifier: BSD-3-Clause
// Counts what goes through a group: a wrapper around any backend that logs every call.
//
//   auto traffic = std::make_shared<comm::Traffic>();
//   comm::Group world(comm::counting(backend, traffic));
//   EXPECT_EQ(traffic->wire_bytes(comm::Kind::all_reduce), 2.0 * (n - 1) / n * grad.nbytes());
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "braid/comm/backend.h"

namespace braid::comm {

struct TrafficEntry {
  Kind kind = Kind::barrier;
  Op op = Op::sum;
  std::string group = {};
  int rank = 0;  // in the group
  int size = 1;
  int64_t bytes = 0;      // of the call: the whole tensor that it is about
  double wire_bytes = 0;  // that a rank sends, see wire_bytes()
  int64_t order = 0;      // of the start, over all groups of the log
  double start = 0;       // seconds since the log was made
  double end = -1;        // when the result was waited for; -1 while under way
  // Of the group, as ranks of the world; shared by all entries of a group.
  std::shared_ptr<const std::vector<int>> ranks = {};
  int peer = -1;  // root of a broadcast, other end of a message: a rank of the world
  int tag = 0;
  bool on_device = false;        // its tensors are not on the host
  int64_t from = 0, until = -1;  // positions of the caller at start and wait, see Traffic
};

// Bytes that a rank sends with the ring algorithms, on average over the ranks: 2 (n-1)/n of the
// whole tensor for all_reduce, (n-1)/n for reduce_scatter and all_gather, all of it for broadcast
// and send, the shares of the other ranks for all_to_all, nothing for recv and barrier.
double wire_bytes(const Call& call, int rank, int size);

// One log for as many groups and ranks as are given it; safe from any thread.
class Traffic {
 public:
  // `position` is asked where the caller stands, at the start of a call and when it is waited for:
  // the number of operators so far, for one.
  explicit Traffic(std::function<int64_t()> position = {}) : position_(std::move(position)) {}
  // Of a dry run: rows that the experts of this rank get, over an even spread.
  double expert_load = 1;

  std::vector<TrafficEntry> entries() const;  // in the order of their starts
  int64_t calls(Kind kind) const;
  int64_t bytes(Kind kind) const;
  double wire_bytes(Kind kind) const;
  double wire_bytes() const;  // of all kinds
  void clear();

  int64_t begin(TrafficEntry entry);  // gives the number for end()
  void end(int64_t order);

 private:
  using Clock = std::chrono::steady_clock;
  double now() const { return std::chrono::duration<double>(Clock::now() - born_).count(); }
  int64_t position() const { return position_ ? position_() : 0; }
  const Clock::time_point born_ = Clock::now();
  const std::function<int64_t()> position_;
  mutable std::mutex mutex_;
  std::vector<TrafficEntry> entries_;
  int64_t cleared_ = 0;  // entries before this number are gone
};

// `group` names the entries; groups split off carry their own names.
std::shared_ptr<Backend> counting(std::shared_ptr<Backend> inner, std::shared_ptr<Traffic> traffic,
                                  const std::string& group = "world");

// Traffic::expert_load of a counting backend; 1 of any other.
double expert_load_of(const Backend* backend);

}  // namespace braid::comm
