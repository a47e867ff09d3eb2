// SPDX-License-Identifier: BSD-3-Clause
// The store of torchrun's agent, which is c10d's own and asks nobody who he is.
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "braid/core/error.h"
#include "comm/c10d_store.h"
#include "comm/quiet_log.h"

namespace braid::comm {

Store Store::torchrun(const TcpStoreOptions& options) {
  const QuietLog quiet;
  c10d::TCPStoreOptions given;
  given.port = static_cast<uint16_t>(options.port);
  given.isServer = options.server;
  given.waitWorkers = false;
  given.timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_seconds * 1000));
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(options.host, given);
    const int port = store->getPort();
    return Store(std::make_shared<State>(State{.store = sealed(std::move(store), options.token),
                                               .place = fmt::format("{}:{}", options.host, port),
                                               .port = port}));
  } catch (const c10::Error& error) {
    const std::string reason = error.what_without_backtrace();
    throw CommError({.what = fmt::format("no store of torchrun at {}:{}: {}", options.host,
                                         options.port, reason.substr(0, reason.find('\n'))),
                     .why = "every rank reaches the store that torchrun's first agent serves",
                     .fix = "check that torchrun runs there, and that this host reaches its "
                            "address and port"});
  }
}

}  // namespace braid::comm
