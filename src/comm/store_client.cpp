// SPDX-License-Identifier: BSD-3-Clause
#include "comm/store_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "braid/core/error.h"

namespace braid::comm {
namespace {

// Waits until the socket is ready for reading or writing; false at the deadline.
bool socket_ready(int socket, short events, std::chrono::steady_clock::time_point deadline) {
  const std::chrono::duration<double, std::milli> left =
      deadline - std::chrono::steady_clock::now();
  pollfd watched = {.fd = socket, .events = events, .revents = 0};
  return ::poll(&watched, 1, static_cast<int>(std::clamp(left.count() + 1, 0.0, 1e9))) > 0;
}

}  // namespace

void StoreClient::throw_lost() const {
  throw CommError({.what = fmt::format("the store at {} has closed the connection", place_),
                   .why = "the process that serves it has ended, or the network broke",
                   .fix = "look for what that process printed"});
}

void StoreClient::throw_refused(const StoreMessage& answer) const {
  throw CommError({.what = fmt::format("the store at {} refused a request: {}", place_,
                                       answer.words.empty() ? "" : answer.words[0]),
                   .why = "a store holds the short texts by which ranks meet",
                   .fix = "keep large data out of it"});
}

void StoreClient::tell(StoreWord kind, std::vector<std::string> words) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_) throw_lost();
    if (complaint_) throw_refused(*complaint_);
  }
  send_all(encode({.kind = kind, .id = 0, .words = std::move(words)}),
           Clock::now() + std::chrono::seconds(5));
}

// In one piece; if that cannot be, the connection is of no more use.
void StoreClient::send_all(const std::string& frame, Clock::time_point deadline) {
  if (frame.size() > most_message_bytes)
    throw_refused(
        {.words = {fmt::format("{} bytes; {} is the limit", frame.size(), most_message_bytes)}});
  const std::lock_guard lock(sending_);
  for (size_t done = 0; done < frame.size();) {
    const ssize_t sent = ::send(socket_.get(), frame.data() + done, frame.size() - done,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) done += static_cast<size_t>(sent);
    if (sent > 0 || errno == EINTR) continue;
    if (errno == EAGAIN && socket_ready(socket_.get(), POLLOUT, deadline)) continue;
    const std::lock_guard state(mutex_);
    lost_ = true;
    changed_.notify_all();
    throw_lost();
  }
}

std::optional<StoreMessage> StoreClient::ask(StoreWord kind, std::vector<std::string> words,
                                             double seconds) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8)));
  Lock lock(mutex_);
  if (complaint_) throw_refused(*complaint_);
  const uint64_t id = next_id_++;
  asked_[id];
  lock.unlock();
  send_all(encode({.kind = kind, .id = id, .words = std::move(words)}),
           std::max(deadline, Clock::now() + std::chrono::seconds(1)));
  lock.lock();
  while (!lost_ && !asked_[id] && Clock::now() < deadline) read_some(lock, deadline);
  std::optional<StoreMessage> answer = std::move(asked_[id]);
  asked_.erase(id);
  if (!answer && lost_) throw_lost();
  lock.unlock();
  if (!answer) send_all(encode({.kind = StoreWord::cancel, .id = id}), deadline);
  if (answer && answer->kind == StoreWord::refused) throw_refused(*answer);
  return answer;
}

// One of those who wait reads; the others are woken when something has come, or to read
// themselves when that one leaves.
void StoreClient::read_some(Lock& lock, Clock::time_point deadline) {
  if (reading_) {
    changed_.wait_until(lock, deadline);
    return;
  }
  reading_ = true;
  lock.unlock();
  std::array<char, 1 << 14> buffer;
  ssize_t got = -1;
  errno = EAGAIN;
  if (socket_ready(socket_.get(), POLLIN, deadline))
    got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  const bool open = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  lock.lock();
  reading_ = false;
  if (got > 0) in_.bytes().append(buffer.data(), static_cast<size_t>(got));
  deliver();
  lost_ = lost_ || !open || in_.broken();
  changed_.notify_all();
}

void StoreClient::deliver() {
  while (std::optional<StoreMessage> answer = in_.next()) {
    const auto found = asked_.find(answer->id);
    if (found != asked_.end()) {
      found->second = std::move(answer);
    } else if (answer->kind == StoreWord::refused) {
      complaint_ = std::move(answer);
    }
  }
}

}  // namespace braid::comm
