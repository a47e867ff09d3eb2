// SPDX-License-Identifier: BSD-3-Clause
// The texts of a store and those who wait for them, without any sockets.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "comm/store_wire.h"

namespace braid::comm {

class StoreBoard {
 public:
  using Tell = std::function<void(uint64_t asker, StoreMessage answer)>;
  explicit StoreBoard(Tell tell, size_t most_bytes = most_board_bytes)
      : tell_(std::move(tell)), most_bytes_(most_bytes) {}

  void handle(uint64_t asker, const StoreMessage& request);
  void forget(uint64_t asker);  // it has gone
  size_t bytes() const { return bytes_; }

 private:
  using Waiter = std::pair<uint64_t, uint64_t>;  // asker, id of the request
  struct Wait {
    std::set<std::string> missing = {};
    std::string wanted = {};  // key whose text is the answer
  };

  bool has_shape(const StoreMessage& request) const;
  bool put(const Waiter& waiter, const std::string& key, const std::string& value);
  void remove(const std::string& key);
  void wait(const Waiter& waiter, const StoreMessage& request);
  void stop_waiting(const Waiter& waiter);
  void add(const Waiter& waiter, const StoreMessage& request);
  void swap(const Waiter& waiter, const StoreMessage& request);
  void say(const Waiter& waiter, StoreWord kind, std::vector<std::string> words = {}) const;
  bool has_all(const StoreMessage& request) const;
  std::string text_of(const std::string& key) const;

  Tell tell_;
  size_t most_bytes_;
  size_t bytes_ = 0;
  std::map<std::string, std::string> texts_;
  std::map<Waiter, Wait> waits_;
  std::map<std::string, std::set<Waiter>> waiters_;  // by missing key
};

}  // namespace braid::comm
