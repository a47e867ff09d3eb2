// SPDX-License-Identifier: BSD-3-Clause
// One rank of the pipeline axis on its way through its program: a host that starts kernels, a
// compute stream, a stream for each group, one for copies.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "plan/simulate_program.h"

namespace braid::plan {

// What stages have said to each other so far.
struct Meeting {  // a collective of several stages
  size_t came = 0;
  double begin = 0;  // the last one's
};
struct Sent {
  double begin = 0, end = 0;
};
struct Post {
  // By sender, receiver and tag, in the order of sending.
  std::map<std::tuple<int, int, int>, std::vector<Sent>> sent;
  // By group and number of the call.
  std::map<std::pair<int32_t, int64_t>, Meeting> meetings;
};

struct RankTimes {
  std::array<double, spent_kinds> spent = {};
  double end = 0;
  double transferring = 0;  // seconds of collectives and messages, hidden or not
  double host = 0;          // seconds of starting kernels and messages
};

class SimulatedRank {
 public:
  SimulatedRank(int stage, const Program& program, const Groups& groups, const Prices& prices);

  // Goes on until the end, or until it waits for what no other stage has done yet.
  void advance(Post& post);
  bool done() const { return done_; }
  size_t progress() const { return next_op_ + next_message_ + next_collective_ + next_wait_; }
  std::string waits_for() const;  // where it stands
  const RankTimes& times() const { return times_; }
  const Program& program() const { return program_; }
  int stage() const { return stage_; }
  void record(std::vector<TimeSpan>* timeline) { timeline_ = timeline; }

 private:
  struct Flight {  // of a message
    double begin = 0, end = 0;
    double others = 0;  // until then it is other stages that are waited for
    int64_t turn = -1;  // which receive of its tag, which call of its group
    bool known = false;
  };

  bool arrive(int64_t op, Post& post);  // all that stands before an operator; false: blocked
  void start_messages(int64_t op, Post& post);
  void start_collectives(int64_t op, Post& post);
  bool wait(int64_t op, Post& post, bool early);
  void start_message(size_t message, Post& post);
  void exchange(size_t message);  // with ranks of the same stage, which do the same
  void start_collective(size_t message, Post& post);
  bool settle(size_t message, Post& post);  // false: not known yet
  bool settle_receive(size_t message, const Post& post);
  bool settle_meeting(size_t message, const Post& post);
  void run(size_t op);
  void run_beside(const PricedOp& op, const Copy& copy);
  void finish();
  void issue(double seconds);  // the host is busy
  void idle(double until, Spent why);
  void fly(size_t message, double begin, double end, double others = 0);
  double ready() const { return std::max(host_, compute_); }
  bool meets(int32_t group) const;
  int peer_stage(size_t message) const;
  const Message& message(size_t number) const { return program_.run->trace.messages[number]; }
  void note(const std::string& stream, const std::string& name, double begin, double end);
  void note_regions();

  const int stage_;
  const Program& program_;
  const Groups& groups_;
  const Prices& prices_;

  double host_ = 0;                     // when the host is free
  double compute_ = 0;                  // when the compute stream is
  std::array<double, 2> copying_ = {};  // when the copy streams are: to the device, to the host
  double fetched_ = 0;                  // end of the copy to the device that is not waited for yet
  std::deque<double> stowed_;           // ends of the copies to the host that are under way
  std::array<double, 2> links_ = {};    // when they are free: inside a node, between nodes
  std::vector<double> streams_;         // by group
  std::map<std::pair<int, comm::Kind>, double> letters_;  // streams of messages, by peer or group
  std::vector<Flight> flights_;                           // by message
  std::map<std::pair<int, int>, int64_t> received_;       // by stage and tag
  std::vector<std::deque<size_t>> open_;                  // by group: meetings not settled
  std::vector<int64_t> calls_;                            // by group

  size_t next_op_ = 0, next_message_ = 0, next_collective_ = 0, next_wait_ = 0;
  bool done_ = false;
  RankTimes times_;
  std::vector<TimeSpan>* timeline_ = nullptr;
  std::vector<double> reached_;  // with a timeline: when the compute stream came to an operator
};

}  // namespace braid::plan
