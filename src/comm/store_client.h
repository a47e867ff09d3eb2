// SPDX-License-Identifier: BSD-3-Clause
// One connection to a store's server, for any number of threads: a thread that waits for a key
// holds up no other one. Deadlines are kept here, so that a server behind a cut link or a stopped
// one costs no more than them.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "braid/comm/store.h"
#include "comm/descriptor.h"
#include "comm/store_wire.h"

namespace braid::comm {

// Connects, and both ends prove the token. CommError: nobody is there, or somebody else.
Descriptor connect_to_store(const TcpStoreOptions& options);
Descriptor listen_for_store(const TcpStoreOptions& options);
// The socket that this process was started with, now this process's alone; and who made it.
Descriptor adopted_socket(int socket);
std::string place_of_peer(const Descriptor& socket);

class StoreClient {
 public:
  StoreClient(Descriptor socket, std::string place)
      : socket_(std::move(socket)), place_(std::move(place)) {}

  // Both throw CommError if the connection is lost.
  void tell(StoreWord kind, std::vector<std::string> words);
  // Nothing if there is no answer within the seconds.
  std::optional<StoreMessage> ask(StoreWord kind, std::vector<std::string> words, double seconds);
  const std::string& place() const { return place_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  void send_all(const std::string& frame, Clock::time_point deadline);
  void read_some(Lock& lock, Clock::time_point deadline);
  void deliver();
  [[noreturn]] void throw_lost() const;
  [[noreturn]] void throw_refused(const StoreMessage& answer) const;

  const Descriptor socket_;
  const std::string place_;
  std::mutex sending_;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::optional<StoreMessage>> asked_;
  StoreFrames in_;
  bool reading_ = false;  // one of those who wait reads for all
  bool lost_ = false;
  std::optional<StoreMessage> complaint_;  // about something that was told
};

}  // namespace braid::comm
