// SPDX-License-Identifier: BSD-3-Clause
// One of the processes of a host, where there is no store to agree through: the first to bind a
// name that vanishes with the process.
#pragma once
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace braid::comm {

// True for the first who asks on this host. The socket stays open until the process ends.
inline bool claim_on_host(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);  // a leading zero: no file
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return true;  // better twice than not at all
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0) return true;
  ::close(socket);
  return false;
}

}  // namespace braid::comm
