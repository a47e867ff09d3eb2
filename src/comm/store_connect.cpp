// SPDX-License-Identifier: BSD-3-Clause
// The way of a client to a store's server over TCP, and the proof of the token at its end.
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "braid/core/error.h"
#include "comm/store_client.h"
#include "comm/store_proof.h"

namespace braid::comm {
namespace {

using ConnectClock = std::chrono::steady_clock;
using Deadline = ConnectClock::time_point;

enum class Reception : uint8_t {
  welcome,
  absent,    // nobody listens there, or nobody reaches it
  busy,      // it hung up before a word: it has many guests now
  stranger,  // no store of braid
  refused,   // a store of braid with another token
};

bool ready_within(int socket, short events, Deadline deadline) {
  const std::chrono::duration<double, std::milli> left = deadline - ConnectClock::now();
  pollfd watched = {.fd = socket, .events = events, .revents = 0};
  return ::poll(&watched, 1, static_cast<int>(std::clamp(left.count() + 1, 0.0, 1e9))) > 0;
}

// 0, or the error.
int finish_connecting(int socket, Deadline deadline) {
  if (!ready_within(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

Descriptor connected_socket(const addrinfo& there, Deadline deadline, int& error) {
  Descriptor socket(::socket(there.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  error = 0;
  if (socket.get() < 0 || ::connect(socket.get(), there.ai_addr, there.ai_addrlen) != 0)
    error = errno == EINPROGRESS ? finish_connecting(socket.get(), deadline) : errno;
  if (error != 0) return Descriptor();
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  return socket;
}

// Fewer bytes if the other end hung up or took too long.
std::string receive_bytes(int socket, size_t count, Deadline deadline) {
  std::string bytes(count, '\0');
  size_t done = 0;
  while (done < count && ready_within(socket, POLLIN, deadline)) {
    const ssize_t got = ::recv(socket, bytes.data() + done, count - done, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (got > 0) done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

Reception prove_token(int socket, const std::string& token, Deadline deadline) {
  const std::string greeting = receive_bytes(socket, greeting_bytes, deadline);
  if (greeting.empty() && ConnectClock::now() < deadline) return Reception::busy;
  if (greeting.size() < greeting_bytes || !greeting.starts_with(store_magic))
    return Reception::stranger;
  const std::string_view nonce = std::string_view(greeting).substr(store_magic.size());
  const std::string proof = proof_of(token, nonce, random_bytes(nonce_bytes));
  if (::send(socket, proof.data(), proof.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(proof.size()))
    return Reception::busy;
  const std::string welcome = receive_bytes(socket, welcome_bytes, deadline);
  if (welcome.size() < welcome_bytes) return Reception::busy;
  return same_bytes(welcome, welcome_for(token, nonce, proof)) ? Reception::welcome
                                                               : Reception::refused;
}

struct FreeStoreAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

struct StoreAddresses {
  std::unique_ptr<addrinfo, FreeStoreAddresses> list;
  std::string reason;  // why there is none
};

StoreAddresses addresses_of(const TcpStoreOptions& options) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code =
      ::getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &wanted, &list);
  if (code != 0) return {.list = nullptr, .reason = gai_strerror(code)};
  return {.list = std::unique_ptr<addrinfo, FreeStoreAddresses>(list), .reason = ""};
}

CommError no_server_at(const TcpStoreOptions& options, const std::string& reason) {
  return CommError(
      {.what = fmt::format("no store at {}:{}: {}", options.host, options.port, reason),
       .why = "the first rank serves the store on a port that no other program uses",
       .fix = "choose another port, or 0 for any"});
}

struct Attempt {
  Descriptor socket = Descriptor();
  Reception reception = Reception::absent;
  std::string reason = {};  // of an absent one
};

Attempt try_store(const TcpStoreOptions& options, Deadline deadline) {
  const StoreAddresses there = addresses_of(options);
  if (!there.list) return {.reason = there.reason};
  int error = EADDRNOTAVAIL;
  for (const addrinfo* one = there.list.get(); one != nullptr; one = one->ai_next) {
    Descriptor socket = connected_socket(*one, deadline, error);
    if (error != 0) continue;
    const Reception reception = prove_token(socket.get(), options.token, deadline);
    return {.socket = std::move(socket), .reception = reception};
  }
  return {.reason = std::strerror(error)};
}

CommError no_store(const TcpStoreOptions& options, const Attempt& last) {
  const std::string place = fmt::format("{}:{}", options.host, options.port);
  if (last.reception == Reception::stranger)
    return CommError({.what = fmt::format("the store at {} belongs to no braid job", place),
                      .why = "what listens there does not speak as a store of braid does",
                      .fix = "give each job a port of its own: export MASTER_PORT=<free port> on "
                             "all its ranks"});
  if (last.reception == Reception::refused)
    return CommError({.what = fmt::format("the store at {} belongs to another job", place),
                      .why = "both ends prove that they know the token of their job, and the two "
                             "tokens differ",
                      .fix = "give each job a port of its own: export MASTER_PORT=<free port> on "
                             "all its ranks; BRAID_JOB_TOKEN must be the same on all of them"});
  return CommError(
      {.what = fmt::format("no store at {}: {}", place,
                           last.reception == Reception::busy
                               ? "it hangs up, as if it had too many guests"
                               : last.reason),
       .why = "every rank reaches the store of the first rank",
       .fix = "check that rank 0 runs, and that this host reaches its address and port"});
}

}  // namespace

Descriptor adopted_socket(int socket) {
  Descriptor mine(::fcntl(socket, F_DUPFD_CLOEXEC, 3));
  int family = AF_UNSPEC;
  socklen_t length = sizeof(family);
  ::getsockopt(mine.get(), SOL_SOCKET, SO_DOMAIN, &family, &length);
  if (family != AF_UNIX)
    throw CommError(
        {.what = fmt::format("descriptor {} is not the socket of the launcher's store", socket),
         .why = "the launcher leaves it open for the rank that it starts, which takes "
                "it once; a program in between has closed it, or it was taken before",
         .fix = "start the rank without programs in between that close descriptors, "
                "and open the world once per process"});
  ::close(socket);
  return mine;
}

std::string place_of_peer(const Descriptor& socket) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  return fmt::format("launcher process {}", peer.pid);
}

Descriptor listen_for_store(const TcpStoreOptions& options) {
  const StoreAddresses there = addresses_of(options);
  if (!there.list) throw no_server_at(options, there.reason);
  const addrinfo& one = *there.list;
  Descriptor socket(::socket(one.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (socket.get() < 0 || ::bind(socket.get(), one.ai_addr, one.ai_addrlen) != 0 ||
      ::listen(socket.get(), 1024) != 0)
    throw no_server_at(options, std::strerror(errno));
  return socket;
}

Descriptor connect_to_store(const TcpStoreOptions& options) {
  const Deadline deadline =
      ConnectClock::now() + std::chrono::duration_cast<ConnectClock::duration>(
                                std::chrono::duration<double>(options.timeout_seconds));
  using std::chrono::milliseconds;
  for (milliseconds pause{2};; pause = std::min(2 * pause, milliseconds(200))) {
    Attempt attempt = try_store(options, deadline);
    if (attempt.reception == Reception::welcome) return std::move(attempt.socket);
    const bool again =
        attempt.reception == Reception::absent || attempt.reception == Reception::busy;
    if (!again || ConnectClock::now() >= deadline) throw no_store(options, attempt);
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace braid::comm
