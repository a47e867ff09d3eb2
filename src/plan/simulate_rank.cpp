// SPDX-License-Identifier: BSD-3-Clause
#include "plan/simulate_rank.h"

#include <fmt/format.h>

#include <limits>

#include "braid/core/region.h"

namespace braid::plan {
namespace {

constexpr int64_t the_end = std::numeric_limits<int64_t>::max();
constexpr size_t copies_under_way = 2;  // to the host, before the step waits for the oldest

std::string_view region_name(const std::string& name) {
  if (name == "forward") return regions::forward;
  if (name == "backward") return regions::backward;
  return name == "optimizer" ? regions::optimizer : std::string_view(name);
}

}  // namespace

SimulatedRank::SimulatedRank(int stage, const Program& program, const Groups& groups,
                             const Prices& prices)
    : stage_(stage),
      program_(program),
      groups_(groups),
      prices_(prices),
      streams_(groups.size()),
      flights_(program.messages.size()),
      open_(groups.size()),
      calls_(groups.size()) {}

void SimulatedRank::advance(Post& post) {
  while (!done_) {
    const bool last = next_op_ == program_.ops.size();
    if (!arrive(last ? the_end : static_cast<int64_t>(next_op_), post)) return;
    if (last)
      finish();
    else
      run(next_op_++);
  }
}

// Messages leave before anything is waited for here, since the other end may need them first.
// Collectives come after the waits: they may carry what was waited for.
bool SimulatedRank::arrive(int64_t op, Post& post) {
  start_messages(op, post);
  if (!wait(op, post, true)) return false;
  start_collectives(op, post);
  return wait(op, post, false);
}

void SimulatedRank::start_messages(int64_t op, Post& post) {
  for (; next_message_ < flights_.size() && message(next_message_).from <= op; ++next_message_)
    if (is_message(message(next_message_).kind)) start_message(next_message_, post);
}

void SimulatedRank::start_collectives(int64_t op, Post& post) {
  for (; next_collective_ < flights_.size() && message(next_collective_).from <= op;
       ++next_collective_)
    if (!is_message(message(next_collective_).kind)) start_collective(next_collective_, post);
}

// `early`: stops at a collective that begins here.
bool SimulatedRank::wait(int64_t op, Post& post, bool early) {
  for (; next_wait_ < program_.waits.size(); ++next_wait_) {
    const auto number = static_cast<size_t>(program_.waits[next_wait_]);
    if (program_.messages[number].until > op) break;
    const Message& call = message(number);
    if (early && !is_message(call.kind) && number >= next_collective_) break;
    if (!settle(number, post)) return false;
    if (call.kind == comm::Kind::send) continue;  // its buffer alone is waited for
    const Flight& flight = flights_[number];
    idle(flight.others, Spent::bubble);
    idle(flight.end, Spent::communication);
  }
  return true;
}

int SimulatedRank::peer_stage(size_t number) const {
  const int stages = groups_.stages();
  return (stage_ + program_.messages[number].jump + stages) % stages;
}

void SimulatedRank::start_message(size_t number, Post& post) {
  const Message& call = message(number);
  const int peer = peer_stage(number);
  issue(prices_.message_host);
  if (peer == stage_) return exchange(number);
  if (call.kind == comm::Kind::recv) {
    flights_[number] = {.begin = ready(), .turn = received_[{peer, call.tag}]++};
    return;
  }
  double& stream = letters_[{peer, call.kind}];
  const double begin = std::max(ready(), stream);
  stream = begin + program_.messages[number].seconds;
  fly(number, begin, stream);
  post.sent[{stage_, peer, call.tag}].push_back({begin, stream});
}

void SimulatedRank::exchange(size_t number) {
  const PricedMessage& priced = program_.messages[number];
  double& stream = letters_[{-1 - priced.group, message(number).kind}];
  const double begin = std::max(ready(), stream);
  stream = begin + priced.seconds;
  fly(number, begin, stream);
}

bool SimulatedRank::meets(int32_t group) const {
  const std::vector<int>& stages = groups_[group].stages;
  return stages.size() > 1 && std::binary_search(stages.begin(), stages.end(), stage_);
}

void SimulatedRank::start_collective(size_t number, Post& post) {
  const PricedMessage& priced = program_.messages[number];
  const auto group = static_cast<size_t>(priced.group);
  issue(prices_.message_host);
  if (meets(priced.group)) {
    flights_[number].turn = calls_[group]++;
    Meeting& meeting = post.meetings[{priced.group, flights_[number].turn}];
    ++meeting.came;
    meeting.begin = std::max(meeting.begin, ready());
    open_[group].push_back(number);
    return;
  }
  double& link = links_[groups_[priced.group].between ? 1 : 0];
  const double begin = std::max({ready(), streams_[group], link});
  link = streams_[group] = begin + priced.seconds;
  fly(number, begin, link);
}

void SimulatedRank::fly(size_t number, double begin, double end, double others) {
  Flight& flight = flights_[number];
  flight.begin = begin;
  flight.end = end;
  flight.others = others;
  flight.known = true;
  const comm::Kind kind = message(number).kind;
  if (kind != comm::Kind::send) times_.transferring += program_.messages[number].seconds;
  times_.end = std::max(times_.end, end);
  if (timeline_ == nullptr) return;
  const std::string& group = groups_[program_.messages[number].group].name;
  const std::string name(comm::to_text(kind));
  note(is_message(kind) ? fmt::format("comm {} {}", group, name) : "comm " + group, name, begin,
       end);
}

bool SimulatedRank::settle(size_t number, Post& post) {
  if (flights_[number].known) return true;
  return message(number).kind == comm::Kind::recv ? settle_receive(number, post)
                                                  : settle_meeting(number, post);
}

bool SimulatedRank::settle_receive(size_t number, const Post& post) {
  const Flight& posted = flights_[number];
  const auto queue = post.sent.find({peer_stage(number), stage_, message(number).tag});
  const auto turn = static_cast<size_t>(posted.turn);
  if (queue == post.sent.end() || queue->second.size() <= turn) return false;
  const Sent& sent = queue->second[turn];
  fly(number, std::max(posted.begin, sent.begin), std::max(posted.begin, sent.end), sent.begin);
  return true;
}

// Calls of a group run one after the other, so that those before this one are settled with it.
bool SimulatedRank::settle_meeting(size_t number, const Post& post) {
  const PricedMessage& priced = program_.messages[number];
  const auto group = static_cast<size_t>(priced.group);
  if (post.meetings.at({priced.group, flights_[number].turn}).came <
      groups_[priced.group].stages.size())
    return false;
  while (!flights_[number].known) {
    const size_t next = open_[group].front();
    open_[group].pop_front();
    const Meeting& meeting = post.meetings.at({priced.group, flights_[next].turn});
    const double begin = std::max(meeting.begin, streams_[group]);
    streams_[group] = begin + program_.messages[next].seconds;
    fly(next, begin, streams_[group], meeting.begin);
  }
  return true;
}

void SimulatedRank::issue(double seconds) {
  host_ += seconds;
  times_.host += seconds;
}

void SimulatedRank::idle(double until, Spent why) {
  if (until <= compute_) return;
  times_.spent[static_cast<size_t>(why)] += until - compute_;
  compute_ = until;
}

void SimulatedRank::run(size_t number) {
  const PricedOp& op = program_.ops[number];
  if (timeline_ != nullptr) reached_.push_back(compute_);
  issue(op.host);
  const RankTrace& trace = program_.run->trace;
  const Copy* copy = op.copy >= 0 ? &trace.copies[static_cast<size_t>(op.copy)] : nullptr;
  if (copy != nullptr && copy->beside) return run_beside(op, *copy);
  if (op.seconds <= 0) return;
  idle(host_, Spent::launch);
  const double begin = compute_;
  compute_ += op.seconds;
  times_.spent[static_cast<size_t>(copy != nullptr ? Spent::copies : op.spent)] += op.seconds;
  if (copy != nullptr && copy->to_host) host_ = compute_;  // the host waits for what it reads
  note("compute", trace.operators[number].name, begin, compute_);
}

// Values come back one ahead of their use: the step goes on with the one before when the next is
// asked for. On the way out a few may be under way, then the memory they leave is needed.
void SimulatedRank::run_beside(const PricedOp& op, const Copy& copy) {
  if (copy.to_host) {
    if (stowed_.size() == copies_under_way) {
      idle(stowed_.front(), Spent::copies);
      stowed_.pop_front();
    }
  } else {
    idle(fetched_, Spent::copies);
  }
  double& stream = copying_[copy.to_host ? 1 : 0];
  const double begin = std::max(ready(), stream);
  stream = begin + op.seconds;
  if (copy.to_host)
    stowed_.push_back(stream);
  else
    fetched_ = stream;
  note(copy.to_host ? "copy to host" : "copy", program_.run->trace.operators[size_t(copy.op)].name,
       begin, stream);
}

void SimulatedRank::finish() {
  done_ = true;
  if (timeline_ != nullptr) reached_.push_back(compute_);
  idle(fetched_, Spent::copies);
  if (!stowed_.empty()) idle(stowed_.back(), Spent::copies);
  idle(times_.end, Spent::communication);  // sends that nobody here waits for
  idle(host_, Spent::launch);
  times_.end = compute_;
  note_regions();
}

std::string SimulatedRank::waits_for() const {
  const auto number = static_cast<size_t>(program_.waits[next_wait_]);
  const Message& call = message(number);
  const std::string where = fmt::format("stage {} after {} operators", stage_, next_op_);
  if (call.kind == comm::Kind::recv)
    return fmt::format("{} waits for message {} with tag {} from stage {}", where,
                       flights_[number].turn, call.tag, peer_stage(number));
  return fmt::format("{} waits for {} number {} of group {}", where, comm::to_text(call.kind),
                     flights_[number].turn, call.group);
}

void SimulatedRank::note(const std::string& stream, const std::string& name, double begin,
                         double end) {
  if (timeline_ == nullptr) return;
  timeline_->push_back(
      {.rank = stage_, .stream = stream, .name = name, .begin = begin, .end = end});
}

void SimulatedRank::note_regions() {
  if (timeline_ == nullptr) return;
  const auto at = [&](int64_t op) {
    return reached_[static_cast<size_t>(
        std::clamp<int64_t>(op, 0, static_cast<int64_t>(reached_.size()) - 1))];
  };
  for (const RegionMark& mark : program_.run->trace.regions)
    note("regions", std::string(region_name(mark.name)), at(mark.from), at(mark.until));
}

}  // namespace braid::plan
