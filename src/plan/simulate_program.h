// SPDX-License-Identifier: BSD-3-Clause
// The trace of a kind of rank with its prices, in the order in which a rank goes through it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "braid/plan/simulate.h"

namespace braid::plan {

// Where the time of a compute stream goes; the first four are kernels.
enum class Spent : uint8_t {
  forward,
  backward,
  recompute,
  optimizer,
  communication,
  copies,
  bubble,
  launch
};
inline constexpr size_t spent_kinds = 8;

struct PricedOp {
  double seconds = 0, host = 0;
  Spent spent = Spent::forward;
  int32_t copy = -1;  // into RankTrace::copies
};

struct PricedMessage {
  double seconds = 0;
  int32_t group = 0;  // of the layout's groups
  int64_t until = 0;
  int jump = 0;  // stages to the peer of a message
};

// Ranks that talk together, seen from one kind of rank.
struct GroupPlace {
  std::string name;
  std::vector<int> stages;  // of the pipeline axis that have a part in it, ascending
  bool between = false;     // its ranks lie on several nodes
};

// Groups of all kinds under one number each.
class Groups {
 public:
  Groups(const LayoutRun& layout, int64_t gpus_per_node);
  int32_t number_of(const Message& message);
  const GroupPlace& operator[](int32_t number) const { return places_[size_t(number)]; }
  size_t size() const { return places_.size(); }
  int stage_of(int64_t rank) const { return static_cast<int>(rank / stride_ % stages_); }
  int stages() const { return static_cast<int>(stages_); }

 private:
  using Key = std::tuple<std::string, size_t, int, int>;
  using Meeting = std::tuple<std::string, size_t, std::vector<int>>;
  int32_t add(GroupPlace place, size_t ranks);
  int64_t stages_ = 1, stride_ = 1, gpus_per_node_ = 1;
  std::map<Key, int32_t> numbers_;
  std::map<Meeting, int32_t> meetings_;  // groups of several stages
  std::vector<GroupPlace> places_;
};

struct Program {
  const RankRun* run = nullptr;
  std::vector<PricedOp> ops;
  std::vector<PricedMessage> messages;  // as in the trace
  std::vector<int32_t> waits;           // messages by the place where they are waited for
};
Program price(const RankRun& run, const Prices& prices, Groups& groups);

inline bool is_message(comm::Kind kind) {
  return kind == comm::Kind::send || kind == comm::Kind::recv;
}

}  // namespace braid::plan
