// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/world.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "braid/comm/store.h"
#include "braid/core/error.h"

namespace braid::launch {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve_udp(const std::string& host, int port) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &list);
  if (code != 0)
    throw CommError({.what = fmt::format("the host {} is not known: {}", host, gai_strerror(code)),
                     .why = "MASTER_ADDR names the host of rank 0",
                     .fix = "set MASTER_ADDR to a name or address that every host can reach"});
  return Addresses(list);
}

// The address of this host as the first rank sees it. What the host's own name resolves to is often
// a loopback address that no other host can reach.
std::string address_towards(const std::string& host, int port) {
  const Addresses there = resolve_udp(host, port);
  const int socket = ::socket(there->ai_family, SOCK_DGRAM, 0);
  sockaddr_storage mine = {};
  socklen_t length = sizeof(mine);
  const bool known = socket >= 0 && ::connect(socket, there->ai_addr, there->ai_addrlen) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&mine), &length) == 0;
  if (socket >= 0) ::close(socket);
  std::array<char, NI_MAXHOST> text = {};
  if (!known || ::getnameinfo(reinterpret_cast<sockaddr*>(&mine), length, text.data(), text.size(),
                              nullptr, 0, NI_NUMERICHOST) != 0)
    throw CommError(
        {.what = fmt::format("there is no way to {}", host),
         .why = "ranks talk to each other over the network that leads to rank 0",
         .fix = "check the network, or set MASTER_ADDR to another address of that host"});
  return text.data();
}

ConfigError no_meeting_place(const Environment& here) {
  return ConfigError(
      {.what = fmt::format("rank {} of {} does not know where to meet the others", here.rank,
                           here.world),
       .why = "MASTER_ADDR and MASTER_PORT name the host of rank 0 and a free port there",
       .fix = "start with torchrun, or: export MASTER_ADDR=<host of rank 0> MASTER_PORT=29500"});
}

}  // namespace

comm::Group open_world(const Environment& here, WorldOptions options) {
  if (here.world == 1) return comm::Group();
  if (here.master_address.empty() || here.master_port == 0) throw no_meeting_place(here);
  const std::string address = address_towards(here.master_address, here.master_port);
  const comm::Store store = comm::Store::tcp({.host = here.master_address,
                                              .port = here.master_port,
                                              .server = here.rank == 0 && !here.agent_serves,
                                              .timeout_seconds = options.timeout_seconds});
  return comm::Group(comm::gloo(store.under("braid"), here.rank, here.world,
                                {.address = address, .timeout_seconds = options.timeout_seconds}));
}

}  // namespace braid::launch
