// SPDX-License-Identifier: BSD-3-Clause
#include "comm/note.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

namespace braid::comm {

std::shared_ptr<const GroupNote> Note::join(const std::string& name, std::vector<int> ranks) {
  // Lists of ranks may be long, and keys travel with every sign of life.
  const size_t hash = std::hash<std::string>{}(fmt::format("{}", fmt::join(ranks, ",")));
  std::string key = fmt::format("{}/{:x}", name, hash);
  const std::lock_guard lock(mutex_);
  key += fmt::format("/{}", names_[key]++);
  counts_[key] = 0;
  return std::make_shared<const GroupNote>(GroupNote{std::move(key), std::move(ranks)});
}

int64_t Note::enter(std::string_view state, const CallNote& call) {
  state_ = state;
  call_ = call.text;
  since_ = Clock::now();
  blocked_[entries_] = {.call = call, .since = since_};
  return entries_++;
}

int64_t Note::begin(const CallNote& call) {
  const std::lock_guard lock(mutex_);
  if (call.group != nullptr && call.number >= 0) counts_[call.group->key] = call.number + 1;
  return enter("started", call);
}

int64_t Note::wait(const CallNote& call) {
  const std::lock_guard lock(mutex_);
  return enter("waits in", call);
}

void Note::begun(int64_t entry) {
  const std::lock_guard lock(mutex_);
  blocked_.erase(entry);
}

void Note::end(int64_t entry) {
  const std::lock_guard lock(mutex_);
  state_ = "has finished";
  const Blocked& over = blocked_[entry];
  call_ = over.call.text;
  since_ = Clock::now();
  waited_ += std::chrono::duration<double>(since_ - over.since).count();
  blocked_.erase(entry);
}

void Note::fail(int64_t entry, std::string reason, bool told) {
  const std::lock_guard lock(mutex_);
  const Blocked& blocked = blocked_[entry];
  const std::chrono::duration<double> seconds = Clock::now() - blocked.since;
  if (failures_.empty())
    failures_.push_back({.call = blocked.call,
                         .seconds = seconds.count(),
                         .reason = std::move(reason),
                         .told = told});
  blocked_.erase(entry);
}

std::string Note::text() const {
  const std::lock_guard lock(mutex_);
  const double seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  if (call_.empty()) return state_;
  return fmt::format("{} {}, {:.1f} s ago", state_, call_, seconds);
}

double Note::waited() const {
  const std::lock_guard lock(mutex_);
  return waited_;
}

std::vector<Note::Blocked> Note::blocked() const {
  const std::lock_guard lock(mutex_);
  std::vector<Blocked> result;
  for (const auto& [entry, blocked] : blocked_) result.push_back(blocked);
  return result;
}

std::vector<Note::Failure> Note::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

std::map<std::string, int64_t> Note::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace braid::comm
