// SPDX-License-Identifier: BSD-3-Clause
// The process that holds the texts of a store: one thread, which serves members over Unix sockets
// that it made itself, and over TCP those who prove the job's token.
#pragma once
#include <memory>
#include <string>
#include <thread>

#include "comm/descriptor.h"

namespace braid::comm {

class StoreServer {
 public:
  StoreServer();                                        // without a port
  StoreServer(Descriptor listener, std::string token);  // a socket that listens already
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  Descriptor member();  // a socket for one member, which needs no proof
  int port() const;     // 0: none

  struct State;

 private:
  std::unique_ptr<State> state_;
  std::thread thread_;
};

}  // namespace braid::comm
