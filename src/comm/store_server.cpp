// SPDX-License-Identifier: BSD-3-Clause
#include "comm/store_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "braid/core/error.h"
#include "comm/quiet_signals.h"
#include "comm/store_board.h"
#include "comm/store_proof.h"

namespace braid::comm {
namespace {

using ServerClock = std::chrono::steady_clock;

constexpr size_t most_guests = 64;   // connections that have not proven the token
constexpr int accepts_a_round = 16;  // so that members are served in between
constexpr std::chrono::seconds guest_patience{5};
constexpr std::chrono::milliseconds rest_time{100};  // when the process has no descriptors left
constexpr size_t most_unread = size_t{1} << 20;      // of a member that does not read its answers
constexpr uint64_t wake_number = 0, listener_number = 1, first_number = 2;

InternalError no_server(const char* what) {
  return InternalError({.what = fmt::format("{}: {}", what, std::strerror(errno)),
                        .why = "ranks meet in a store that one process serves",
                        .fix = "look at ulimit -n"});
}

// Guests are counted by host: an IPv4 address, or the network part of an IPv6 address.
std::string source_of(const sockaddr_storage& from) {
  if (from.ss_family != AF_INET6) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(from);
    return {reinterpret_cast<const char*>(&four.sin_addr), sizeof(four.sin_addr)};
  }
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
  const char* bytes = reinterpret_cast<const char*>(&six);
  return IN6_IS_ADDR_V4MAPPED(&six) ? std::string(bytes + 12, 4) : std::string(bytes, 8);
}

int port_of_door(const Descriptor& door) {
  sockaddr_storage mine = {};
  socklen_t length = sizeof(mine);
  if (door.get() < 0 || ::getsockname(door.get(), reinterpret_cast<sockaddr*>(&mine), &length) != 0)
    return 0;
  return ntohs(mine.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(mine).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(mine).sin_port);
}

}  // namespace

struct StoreServer::State {
  struct Line {  // a connection
    Descriptor socket;
    StoreFrames in = {};
    std::string out = {};
    std::string nonce = {};  // of a guest
    std::string source = {};
    ServerClock::time_point since = {};
    bool member = false;
    bool dead = false;
  };

  State(Descriptor listener, std::string given)
      : door(std::move(listener)), port(port_of_door(door)), token(std::move(given)) {
    const int flags = door.get() < 0 ? 0 : ::fcntl(door.get(), F_GETFL);
    if (door.get() >= 0) ::fcntl(door.get(), F_SETFL, flags | O_NONBLOCK);
    if (epoll.get() < 0 || wake.get() < 0) throw no_server("cannot serve a store");
    watch(EPOLL_CTL_ADD, wake.get(), wake_number, EPOLLIN);
    if (door.get() >= 0) watch(EPOLL_CTL_ADD, door.get(), listener_number, EPOLLIN);
  }

  void run();
  void watch(int what, int socket, uint64_t number, uint32_t events) const;
  void take_adopted();
  void accept_guests();
  void greet(Descriptor socket, const sockaddr_storage& from);
  void keep_few_guests();
  void shut_door();
  void serve(uint64_t number, uint32_t events);
  bool read_from(Line& line) const;
  void check_proof(uint64_t number, Line& line);
  void answer_requests(uint64_t number, Line& line);
  void tell(uint64_t number, const StoreMessage& answer);
  void send_to(uint64_t number, Line& line) const;
  void drop(uint64_t number);
  void sweep();
  int patience_milliseconds() const;

  const Descriptor epoll{::epoll_create1(EPOLL_CLOEXEC)};
  const Descriptor wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Descriptor door;
  const int port;
  const std::string token;
  std::atomic<bool> ended = false;
  std::mutex mutex;  // of the sockets that other threads hand over
  std::vector<Descriptor> adopted;

  // Of the thread alone.
  std::map<uint64_t, Line> lines;
  std::map<std::string, size_t> guests;  // by source
  size_t guest_count = 0;
  uint64_t next_number = first_number;
  bool resting = false;
  ServerClock::time_point rest_until = {};
  bool some_dead = false;
  StoreBoard board{[this](uint64_t asker, const StoreMessage& answer) { tell(asker, answer); }};
};

void StoreServer::State::watch(int what, int socket, uint64_t number, uint32_t events) const {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = number;
  ::epoll_ctl(epoll.get(), what, socket, &event);
}

void StoreServer::State::run() {
  std::array<epoll_event, 64> events = {};
  while (!ended) {
    const int count = ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()),
                                   patience_milliseconds());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == wake_number) take_adopted();
      if (event.data.u64 == listener_number) accept_guests();
      if (event.data.u64 >= first_number) serve(event.data.u64, event.events);
    }
    sweep();
  }
}

void StoreServer::State::take_adopted() {
  uint64_t count = 0;
  if (::read(wake.get(), &count, sizeof(count)) < 0) return;
  const std::lock_guard lock(mutex);
  for (Descriptor& socket : adopted) {
    watch(EPOLL_CTL_ADD, socket.get(), next_number, EPOLLIN);
    lines.emplace(next_number++, Line{.socket = std::move(socket), .member = true});
  }
  adopted.clear();
}

void StoreServer::State::accept_guests() {
  for (int i = 0; i < accepts_a_round && door.get() >= 0; ++i) {
    sockaddr_storage from = {};
    socklen_t length = sizeof(from);
    Descriptor socket(::accept4(door.get(), reinterpret_cast<sockaddr*>(&from), &length,
                                SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() >= 0) {
      greet(std::move(socket), from);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      resting = true;  // else the door would report this guest again and again
      rest_until = ServerClock::now() + rest_time;
      watch(EPOLL_CTL_DEL, door.get(), listener_number, 0);
    }
    return;
  }
}

void StoreServer::State::greet(Descriptor socket, const sockaddr_storage& from) {
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  Line line{.socket = std::move(socket), .nonce = random_bytes(nonce_bytes)};
  const std::string greeting = std::string(store_magic) + line.nonce;
  if (::send(line.socket.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(greeting.size()))
    return;
  line.source = source_of(from);
  line.since = ServerClock::now();
  watch(EPOLL_CTL_ADD, line.socket.get(), next_number, EPOLLIN);
  ++guests[line.source];
  ++guest_count;
  lines.emplace(next_number++, std::move(line));
  keep_few_guests();
}

// The oldest guest of the host that sent most of them goes: a member proves itself within one
// round trip, and one host cannot keep out another.
void StoreServer::State::keep_few_guests() {
  if (guest_count <= most_guests) return;
  const auto most = std::max_element(
      guests.begin(), guests.end(),
      [](const auto& one, const auto& other) { return one.second < other.second; });
  for (const auto& [number, line] : lines)
    if (!line.member && line.source == most->first) return drop(number);
}

void StoreServer::State::shut_door() {
  if (door.get() < 0) return;
  Descriptor closed = std::move(door);
  for (auto& [number, line] : lines) line.dead = line.dead || !line.member;
  some_dead = true;
}

void StoreServer::State::serve(uint64_t number, uint32_t events) {
  const auto found = lines.find(number);
  if (found == lines.end() || found->second.dead) return;
  Line& line = found->second;
  if ((events & EPOLLOUT) != 0) send_to(number, line);
  const bool open = (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0 || read_from(line);
  if (line.member)
    answer_requests(number, line);
  else
    check_proof(number, line);
  line.dead = line.dead || !open;
  some_dead = some_dead || line.dead;
}

// False if the other end has closed.
bool StoreServer::State::read_from(Line& line) const {
  std::array<char, 1 << 16> buffer;
  const size_t wanted = line.member ? buffer.size() : proof_bytes - line.in.bytes().size();
  const ssize_t got = ::recv(line.socket.get(), buffer.data(), wanted, 0);
  if (got > 0) line.in.bytes().append(buffer.data(), static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

void StoreServer::State::check_proof(uint64_t number, Line& line) {
  std::string& proof = line.in.bytes();
  if (proof.size() < proof_bytes) return;
  const std::string welcome = welcome_for(token, line.nonce, proof);
  proof.clear();
  if (welcome.empty()) {  // said, so that it is not taken for a busy server
    line.dead = true;
    const std::string refusal(welcome_bytes, '\0');
    if (::send(line.socket.get(), refusal.data(), refusal.size(), MSG_NOSIGNAL) < 0) return;
    return;
  }
  line.member = true;
  if (--guests[line.source] == 0) guests.erase(line.source);
  --guest_count;
  line.out += welcome;
  send_to(number, line);
}

void StoreServer::State::answer_requests(uint64_t number, Line& line) {
  while (line.out.size() <= most_unread) {
    const auto request = line.in.next();
    if (!request) break;
    if (request->kind == StoreWord::shut) shut_door();
    board.handle(number, *request);
  }
  line.dead = line.dead || line.in.broken();
}

void StoreServer::State::tell(uint64_t number, const StoreMessage& answer) {
  const auto found = lines.find(number);
  if (found == lines.end() || found->second.dead) return;
  found->second.out += encode(answer);
  send_to(number, found->second);
}

// As much as fits. A member that does not read its answers is not heard until it does.
void StoreServer::State::send_to(uint64_t number, Line& line) const {
  const ssize_t sent =
      ::send(line.socket.get(), line.out.data(), line.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) line.out.erase(0, static_cast<size_t>(sent));
  const uint32_t hears = line.out.size() > most_unread ? 0u : static_cast<uint32_t>(EPOLLIN);
  watch(EPOLL_CTL_MOD, line.socket.get(), number,
        hears | (line.out.empty() ? 0u : static_cast<uint32_t>(EPOLLOUT)));
}

void StoreServer::State::drop(uint64_t number) {
  const auto found = lines.find(number);
  if (found == lines.end()) return;
  const Line& line = found->second;
  if (!line.member) {
    if (--guests[line.source] == 0) guests.erase(line.source);
    --guest_count;
  }
  lines.erase(found);
  board.forget(number);
}

// Ends the lines that are over and the guests that were silent for too long.
void StoreServer::State::sweep() {
  const auto now = ServerClock::now();
  if (resting && now >= rest_until) {
    resting = false;
    if (door.get() >= 0) watch(EPOLL_CTL_ADD, door.get(), listener_number, EPOLLIN);
  }
  if (!some_dead && guest_count == 0) return;
  some_dead = false;
  std::vector<uint64_t> over;
  for (const auto& [number, line] : lines)
    if (line.dead || (!line.member && now - line.since > guest_patience)) over.push_back(number);
  for (const uint64_t number : over) drop(number);
}

int StoreServer::State::patience_milliseconds() const {
  if (resting) return static_cast<int>(rest_time.count());
  return guest_count == 0 ? -1 : 1000;
}

StoreServer::StoreServer() : StoreServer(Descriptor(), "") {}

StoreServer::StoreServer(Descriptor listener, std::string token)
    : state_(std::make_unique<State>(std::move(listener), std::move(token))) {
  const QuietSignals quiet;
  thread_ = std::thread([state = state_.get()] { state->run(); });
}

StoreServer::~StoreServer() {
  state_->ended = true;
  const uint64_t one = 1;
  if (::write(state_->wake.get(), &one, sizeof(one)) > 0) thread_.join();
}

Descriptor StoreServer::member() {
  std::array<int, 2> ends = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw no_server("cannot make a socket for a rank");
  Descriptor mine(ends[0]), theirs(ends[1]);
  {
    const std::lock_guard lock(state_->mutex);
    state_->adopted.push_back(std::move(mine));
  }
  const uint64_t one = 1;
  if (::write(state_->wake.get(), &one, sizeof(one)) < 0) throw no_server("cannot wake the store");
  return theirs;
}

int StoreServer::port() const { return state_->port; }

}  // namespace braid::comm
