// SPDX-License-Identifier: BSD-3-Clause
// Addresses and sockets: at which address others reach this host, and whether they can be reached.
#pragma once
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "comm/descriptor.h"

namespace braid::launch {

using Instant = std::chrono::steady_clock::time_point;
inline Instant seconds_from_now(double seconds) {
  return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                std::chrono::duration<double>(seconds));
}
inline double seconds_until(Instant when) {
  return std::chrono::duration<double>(when - std::chrono::steady_clock::now()).count();
}

using comm::Descriptor;

// The address of this host as `host` sees it. What the host's own name resolves to is often a
// loopback address that no other host can reach.
std::string address_towards(const std::string& host, int port);
std::string address_of_interface(const std::string& name);
bool is_loopback(const std::string& address);

// A socket that listens at the port (0: any free one), on loopback alone or at every address.
// Throws CommError if the port is in use.
Descriptor listen_at(int port, bool loopback_only);
int port_of(const Descriptor& socket);

// All addresses of this host but loopback.
std::vector<std::string> outer_addresses();

// Until somebody listens at one of these hosts, and which. CommError names the host and what became
// of the last try. `name_may_come`: a name that is not known yet is asked for again.
std::string wait_for_listener(const std::vector<std::string>& hosts, int port, Instant deadline,
                              bool name_may_come);

}  // namespace braid::launch
