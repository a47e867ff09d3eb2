// SPDX-License-Identifier: BSD-3-Clause
// The graph behind a virtual clock: events with durations and what each comes after.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "braid/comm/clock.h"

namespace braid::comm {

struct VirtualClock::State {
  State(int ranks, CostFunction cost) : ranks(ranks), cost(std::move(cost)) {}

  struct Node {
    double seconds = 0;
    int absent = 0;  // ranks that have not come yet: until then the node cannot begin
    std::string label = {};
    std::vector<int64_t> after = {};
    int64_t message = -1;  // node whose end this one's end waits for; its begin does not
    double begin = 0, end = 0;
    bool known = false;
  };
  struct Shown {  // a node as it appears on a stream
    int rank;
    std::string stream, label;
    int64_t node;
  };
  using Stream = std::pair<int, std::string>;

  // All of these want the mutex held.
  int64_t add(Node node);
  int64_t last(int rank, const std::string& stream) const;  // -1: nothing on it
  void put(int rank, const std::string& stream, int64_t node);
  void follow(int64_t node, int64_t before);  // -1 is ignored
  void resolve();                             // times of all that can be known
  [[noreturn]] void name_stuck() const;

  const int ranks;
  const CostFunction cost;
  mutable std::mutex mutex;
  std::vector<Node> nodes;
  std::vector<Shown> shown;
  std::map<Stream, int64_t> lasts;
  std::map<std::string, int64_t> meetings;  // messages and collectives that some rank has come to
  bool fresh = false;                       // times hold for all nodes
};

}  // namespace braid::comm
