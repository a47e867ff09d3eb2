// SPDX-License-Identifier: BSD-3-Clause
#include "launch/address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "braid/core/error.h"

namespace braid::launch {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

struct Resolved {
  Addresses list;
  std::string problem;  // empty if the name is known
};

Resolved resolve_host(const std::string& host, int port, int kind) {
  addrinfo wanted = {};
  wanted.ai_socktype = kind;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &list);
  if (code != 0) return {.list = nullptr, .problem = gai_strerror(code)};
  return {.list = Addresses(list), .problem = ""};
}

CommError unknown_host(const std::string& host, const std::string& problem) {
  return CommError({.what = fmt::format("the host {} is not known: {}", host, problem),
                    .why = "MASTER_ADDR names the host of rank 0",
                    .fix = "set MASTER_ADDR to a name or address that every host can reach"});
}

std::string numeric_text(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text = {};
  const int code =
      ::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? text.data() : "";
}

// 0, or the error of a connection attempt that is given `seconds`.
int try_connect(const addrinfo& there, double seconds) {
  const Descriptor socket(::socket(there.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return errno;
  if (::connect(socket.get(), there.ai_addr, there.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd watched = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&watched, 1, static_cast<int>(seconds * 1000)) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

int try_all(const addrinfo& list, double seconds) {
  int error = 0;
  for (const addrinfo* one = &list; one != nullptr; one = one->ai_next) {
    error = try_connect(*one, std::max(0.01, seconds));
    if (error == 0) break;
  }
  return error;
}

// Interface and address, IPv4 first.
std::vector<std::pair<std::string, std::string>> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& [family, length] :
       {std::pair<int, socklen_t>(AF_INET, sizeof(sockaddr_in)), {AF_INET6, sizeof(sockaddr_in6)}})
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next)
      if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == family)
        found.emplace_back(one->ifa_name, numeric_text(one->ifa_addr, length));
  return found;
}

CommError nobody_listens(const std::string& host, int port, int error) {
  const bool refused = error == ECONNREFUSED;
  return CommError(
      {.what = refused ? fmt::format("nothing listens at {}:{}", host, port)
                       : fmt::format("the host {} cannot be reached at port {}: {}", host, port,
                                     std::strerror(error)),
       .why = "rank 0, or the launcher, serves the store there at which all ranks meet",
       .fix = refused ? "look for what rank 0 printed; give all ranks the same MASTER_ADDR and "
                        "MASTER_PORT"
                      : fmt::format("check that this host reaches {} (network, firewall), or set "
                                    "MASTER_ADDR to another address of it",
                                    host)});
}

Descriptor bound_socket(const sockaddr* address, socklen_t length, bool dual) {
  Descriptor socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (dual) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  if (socket.get() < 0 || ::bind(socket.get(), address, length) != 0 ||
      ::listen(socket.get(), 1024) != 0)
    return Descriptor();
  return socket;
}

}  // namespace

std::string address_towards(const std::string& host, int port) {
  const Resolved there = resolve_host(host, port, SOCK_DGRAM);
  if (!there.list) throw unknown_host(host, there.problem);
  for (const addrinfo* one = there.list.get(); one != nullptr; one = one->ai_next) {
    const Descriptor socket(::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage mine = {};
    socklen_t length = sizeof(mine);
    if (socket.get() < 0 || ::connect(socket.get(), one->ai_addr, one->ai_addrlen) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&mine), &length) != 0)
      continue;
    const std::string text = numeric_text(reinterpret_cast<sockaddr*>(&mine), length);
    if (!text.empty()) return text;
  }
  throw CommError({.what = fmt::format("there is no way to {}", host),
                   .why = "ranks talk to each other over the network that leads to rank 0",
                   .fix = "check the network, or set MASTER_ADDR to another address of that host"});
}

std::string address_of_interface(const std::string& name) {
  std::string found;
  std::set<std::string> names;
  for (const auto& [interface, address] : own_addresses()) {
    names.insert(interface);
    if (interface == name && found.empty()) found = address;
  }
  if (!found.empty()) return found;
  throw ConfigError({.what = fmt::format("launch.interface = {} has no address here", name),
                     .why = fmt::format("this host has {}", fmt::join(names, ", ")),
                     .fix = "name one of these, or leave it out"});
}

std::vector<std::string> outer_addresses() {
  std::vector<std::string> found;
  for (const auto& [interface, address] : own_addresses())
    if (!is_loopback(address)) found.push_back(address);
  return found;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

Descriptor listen_at(int port, bool loopback_only) {
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  four.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  six.sin6_port = four.sin_port;
  Descriptor socket;
  if (!loopback_only) socket = bound_socket(reinterpret_cast<sockaddr*>(&six), sizeof(six), true);
  if (socket.get() < 0)  // a host without IPv6
    socket = bound_socket(reinterpret_cast<sockaddr*>(&four), sizeof(four), false);
  if (socket.get() >= 0) return socket;
  const int error = errno;
  throw CommError(
      {.what = error == EADDRINUSE
                   ? fmt::format("port {} is in use on this host", port)
                   : fmt::format("cannot listen at port {}: {}", port, std::strerror(error)),
       .why = "rank 0 serves the store there at which all ranks meet",
       .fix = "give this job a port of its own: export MASTER_PORT=<free port> on all ranks, or "
              "--set launch.port=<free port>"});
}

int port_of(const Descriptor& socket) {
  sockaddr_storage mine = {};
  socklen_t length = sizeof(mine);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&mine), &length) != 0) return 0;
  return ntohs(mine.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&mine)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&mine)->sin_port);
}

std::string wait_for_listener(const std::vector<std::string>& hosts, int port, Instant deadline,
                              bool name_may_come) {
  using namespace std::chrono_literals;
  for (auto pause = 5ms;; pause = std::min(2 * pause, 100ms)) {
    for (const std::string& host : hosts) {
      const double left = seconds_until(deadline);
      const Resolved there = resolve_host(host, port, SOCK_STREAM);
      if (!there.list && (!name_may_come || left <= 0)) throw unknown_host(host, there.problem);
      const double patience = hosts.size() == 1 ? left : std::min(left, 1.0);
      const int error = there.list ? try_all(*there.list, patience) : ECONNREFUSED;
      if (error == 0) return host;
      if (left <= 0 && host == hosts.back()) throw nobody_listens(host, port, error);
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace braid::launch
