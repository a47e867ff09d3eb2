// SPDX-License-Identifier: BSD-3-Clause
#include "comm/store_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace braid::comm {
namespace {

constexpr size_t entry_bytes = 64;  // of memory beside the text itself
constexpr uint64_t unasked = 0;     // id of a complaint about a request without an answer

int64_t board_number(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

bool StoreBoard::has_shape(const StoreMessage& request) const {
  const size_t words = request.words.size();
  switch (request.kind) {
    case StoreWord::set:
    case StoreWord::add:
      return words == 2;
    case StoreWord::swap:
      return words == 3;
    case StoreWord::get:
    case StoreWord::remove:
      return words == 1;
    default:
      return true;
  }
}

void StoreBoard::handle(uint64_t asker, const StoreMessage& request) {
  const Waiter waiter{asker, request.id};
  if (!has_shape(request) || request.kind >= StoreWord::yes)
    return say(waiter, StoreWord::refused, {"the request is not one of the store's"});
  switch (request.kind) {
    case StoreWord::set:
      put({asker, unasked}, request.words[0], request.words[1]);
      return;
    case StoreWord::remove:
      return remove(request.words[0]);
    case StoreWord::cancel:
      return stop_waiting(waiter);
    case StoreWord::get:
    case StoreWord::wait:
      return wait(waiter, request);
    case StoreWord::check:
      return say(waiter, has_all(request) ? StoreWord::yes : StoreWord::no);
    case StoreWord::add:
      return add(waiter, request);
    case StoreWord::swap:
      return swap(waiter, request);
    case StoreWord::count:
      return say(waiter, StoreWord::yes, {std::to_string(texts_.size())});
    default:
      return;
  }
}

void StoreBoard::forget(uint64_t asker) {
  auto at = waits_.lower_bound({asker, 0});
  while (at != waits_.end() && at->first.first == asker) {
    const Waiter gone = at->first;
    ++at;
    stop_waiting(gone);
  }
}

// False if it was refused, and the one who wrote has been told.
bool StoreBoard::put(const Waiter& waiter, const std::string& key, const std::string& value) {
  const auto old = texts_.find(key);
  const size_t more = key.size() + value.size() + entry_bytes;
  const size_t less = old == texts_.end() ? 0 : key.size() + old->second.size() + entry_bytes;
  if (bytes_ - less + more > most_bytes_) {
    say(waiter, StoreWord::refused,
        {fmt::format("the store is full: {} bytes are its limit, and {} has {}", most_bytes_, key,
                     value.size())});
    return false;
  }
  bytes_ = bytes_ - less + more;
  texts_[key] = value;
  const auto waiting = waiters_.find(key);
  if (waiting == waiters_.end()) return true;
  const std::set<Waiter> waiters = std::move(waiting->second);
  waiters_.erase(waiting);
  for (const Waiter& one : waiters) {
    Wait& wait = waits_.at(one);
    wait.missing.erase(key);
    if (!wait.missing.empty()) continue;
    say(one, StoreWord::yes,
        wait.wanted.empty() ? std::vector<std::string>{} : std::vector{text_of(wait.wanted)});
    waits_.erase(one);
  }
  return true;
}

void StoreBoard::remove(const std::string& key) {
  const auto found = texts_.find(key);
  if (found == texts_.end()) return;
  bytes_ -= key.size() + found->second.size() + entry_bytes;
  texts_.erase(found);
}

void StoreBoard::wait(const Waiter& waiter, const StoreMessage& request) {
  const bool wants_text = request.kind == StoreWord::get;
  Wait wait{.missing = {}, .wanted = wants_text ? request.words[0] : ""};
  for (const std::string& key : request.words)
    if (!texts_.contains(key)) wait.missing.insert(key);
  if (wait.missing.empty())
    return say(waiter, StoreWord::yes,
               wants_text ? std::vector{text_of(request.words[0])} : std::vector<std::string>{});
  for (const std::string& key : wait.missing) waiters_[key].insert(waiter);
  waits_[waiter] = std::move(wait);
}

void StoreBoard::stop_waiting(const Waiter& waiter) {
  const auto found = waits_.find(waiter);
  if (found == waits_.end()) return;
  for (const std::string& key : found->second.missing) {
    const auto waiters = waiters_.find(key);
    waiters->second.erase(waiter);
    if (waiters->second.empty()) waiters_.erase(waiters);
  }
  waits_.erase(found);
}

void StoreBoard::add(const Waiter& waiter, const StoreMessage& request) {
  const std::string sum =
      std::to_string(board_number(text_of(request.words[0])) + board_number(request.words[1]));
  if (put(waiter, request.words[0], sum)) say(waiter, StoreWord::yes, {sum});
}

// As c10d's: a key that is not there is set if nothing was expected; else it gives what was
// expected.
void StoreBoard::swap(const Waiter& waiter, const StoreMessage& request) {
  const std::string &key = request.words[0], &expected = request.words[1],
                    &desired = request.words[2];
  const bool there = texts_.contains(key);
  if (!there && !expected.empty()) return say(waiter, StoreWord::yes, {expected});
  const std::string now = text_of(key);
  if (there && now != expected) return say(waiter, StoreWord::yes, {now});
  if (put(waiter, key, desired)) say(waiter, StoreWord::yes, {desired});
}

void StoreBoard::say(const Waiter& waiter, StoreWord kind, std::vector<std::string> words) const {
  tell_(waiter.first, {.kind = kind, .id = waiter.second, .words = std::move(words)});
}

bool StoreBoard::has_all(const StoreMessage& request) const {
  return std::all_of(request.words.begin(), request.words.end(),
                     [&](const std::string& key) { return texts_.contains(key); });
}

std::string StoreBoard::text_of(const std::string& key) const {
  const auto found = texts_.find(key);
  return found == texts_.end() ? "" : found->second;
}

}  // namespace braid::comm
