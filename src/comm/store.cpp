// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/store.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "braid/core/error.h"
#include "comm/c10d_store.h"

namespace braid::comm {
namespace {

std::chrono::milliseconds store_timeout(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::string store_reason(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

}  // namespace

Store::Store(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Store Store::in_memory() {
  return Store(std::make_shared<State>(State{c10::make_intrusive<c10d::HashStore>(), 0, "memory"}));
}

Store Store::file(const std::string& path, int readers) {
  return Store(
      std::make_shared<State>(State{c10::make_intrusive<c10d::FileStore>(path, readers), 0, path}));
}

Store Store::tcp(const TcpStoreOptions& options) {
  c10d::TCPStoreOptions given;
  given.port = static_cast<uint16_t>(options.port);
  given.isServer = options.server;
  given.waitWorkers = false;
  given.timeout = store_timeout(options.timeout_seconds);
  if (options.listener >= 0) given.masterListenFd = options.listener;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(options.host, given);
    const int port = store->getPort();
    return Store(std::make_shared<State>(
        State{std::move(store), port, fmt::format("{}:{}", options.host, port)}));
  } catch (const c10::Error& error) {
    throw CommError(
        {.what =
             fmt::format("no store at {}:{}: {}", options.host, options.port, store_reason(error)),
         .why = options.server
                    ? "the first rank serves the store on a port that no other program uses"
                    : "every rank reaches the store of the first rank",
         .fix = options.server
                    ? "choose another port, or 0 for any"
                    : "check that rank 0 runs, and that this host reaches its address and port"});
  }
}

Store Store::under(const std::string& name) const {
  return Store(std::make_shared<State>(State{
      c10::make_intrusive<c10d::PrefixStore>(name, state_->store), state_->port, state_->place}));
}

Store Store::clone() const {
  return Store(std::make_shared<State>(State{state_->store->clone(), state_->port, state_->place}));
}

void Store::set(const std::string& key, const std::string& value) const {
  state_->store->set(key, value);
}

std::string Store::get(const std::string& key, double timeout_seconds) const {
  try {
    state_->store->wait({key}, store_timeout(timeout_seconds));
    return state_->store->get_to_str(key);
  } catch (const c10::Error& error) {
    throw CommError({.what = fmt::format("no rank set {} in the store within {} s: {}", key,
                                         timeout_seconds, store_reason(error)),
                     .why = "another rank sets it when it comes to the same point",
                     .fix = "look for a rank that did not start, or ended early"});
  }
}

bool Store::has(const std::string& key) const { return state_->store->check({key}); }
void Store::remove(const std::string& key) const { state_->store->deleteKey(key); }
bool Store::claim(const std::string& key) const { return state_->store->add(key, 1) == 1; }
const std::string& Store::place() const { return state_->place; }
int Store::port() const { return state_->port; }

}  // namespace braid::comm
