// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "braid/core/error.h"
#include "comm/c10d_store.h"
#include "comm/store_client.h"
#include "comm/store_server.h"

namespace braid::comm {
namespace {

using Bytes = std::vector<uint8_t>;
using Milliseconds = std::chrono::milliseconds;

struct NotInTime : CommError {
  using CommError::CommError;
};

Bytes store_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string store_text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

// A store that braid serves, as c10d wants to see it.
class ServedStore final : public c10d::Store {
 public:
  ServedStore(std::shared_ptr<StoreClient> client, Milliseconds timeout)
      : Store(timeout), client_(std::move(client)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<ServedStore>(client_, timeout_);
  }
  void set(const std::string& key, const Bytes& value) override {
    client_->tell(StoreWord::set, {key, store_text(value)});
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return store_bytes(ask(StoreWord::swap, {key, store_text(expected), store_text(desired)}));
  }
  Bytes get(const std::string& key) override {
    const auto answer = client_->ask(StoreWord::get, {key}, seconds(timeout_));
    if (!answer) throw_not_in_time({key}, timeout_);
    return store_bytes(answer->words.at(0));
  }
  int64_t add(const std::string& key, int64_t value) override {
    return std::stoll(ask(StoreWord::add, {key, std::to_string(value)}));
  }
  bool deleteKey(const std::string& key) override {
    client_->tell(StoreWord::remove, {key});
    return true;
  }
  bool check(const std::vector<std::string>& keys) override {
    return answer_of(StoreWord::check, keys).kind == StoreWord::yes;
  }
  int64_t getNumKeys() override { return std::stoll(ask(StoreWord::count, {})); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
    if (!client_->ask(StoreWord::wait, keys, seconds(timeout))) throw_not_in_time(keys, timeout);
  }

 private:
  static double seconds(Milliseconds timeout) {
    return std::chrono::duration<double>(timeout).count();
  }
  // What is not waited for is answered at once.
  StoreMessage answer_of(StoreWord kind, std::vector<std::string> words) {
    auto answer = client_->ask(kind, std::move(words), seconds(timeout_));
    if (answer) return std::move(*answer);
    throw CommError({.what = fmt::format("the store at {} does not answer", client_->place()),
                     .why = fmt::format("{:.0f} s are over", seconds(timeout_)),
                     .fix = "check that the process that serves it runs and can be reached"});
  }
  std::string ask(StoreWord kind, std::vector<std::string> words) {
    return answer_of(kind, std::move(words)).words.at(0);
  }
  [[noreturn]] static void throw_not_in_time(const std::vector<std::string>& keys,
                                             Milliseconds timeout) {
    throw NotInTime({.what = fmt::format("no rank set {} in the store within {} s",
                                         fmt::join(keys, ", "), seconds(timeout)),
                     .why = "another rank sets it when it comes to the same point",
                     .fix = "look for a rank that did not start, or ended early"});
  }

  const std::shared_ptr<StoreClient> client_;
};

Milliseconds store_timeout(double seconds) {
  return Milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::string store_reason(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

std::shared_ptr<const Store::State> state_over(Descriptor socket, const std::string& place,
                                               double timeout_seconds,
                                               std::shared_ptr<StoreServer> server = nullptr) {
  auto client = std::make_shared<StoreClient>(std::move(socket), place);
  const int port = server == nullptr ? 0 : server->port();
  return std::make_shared<Store::State>(Store::State{
      .store = c10::make_intrusive<ServedStore>(client, store_timeout(timeout_seconds)),
      .place = place,
      .port = port,
      .server = std::move(server),
      .client = client});
}

}  // namespace

Store::Store(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Store Store::in_memory() {
  return Store(std::make_shared<State>(
      State{.store = c10::make_intrusive<c10d::HashStore>(), .place = "memory"}));
}

Store Store::file(const std::string& path, int readers) {
  return Store(std::make_shared<State>(
      State{.store = c10::make_intrusive<c10d::FileStore>(path, readers), .place = path}));
}

Store Store::private_server(double timeout_seconds) {
  auto server = std::make_shared<StoreServer>();
  Descriptor socket = server->member();
  const std::string place = place_of_peer(socket);
  return Store(state_over(std::move(socket), place, timeout_seconds, std::move(server)));
}

Store Store::inherited(int socket, double timeout_seconds) {
  Descriptor mine = adopted_socket(socket);
  const std::string place = place_of_peer(mine);
  return Store(state_over(std::move(mine), place, timeout_seconds));
}

Store Store::tcp(const TcpStoreOptions& options) {
  if (!options.server) {
    Descriptor socket = connect_to_store(options);
    return Store(state_over(std::move(socket), fmt::format("{}:{}", options.host, options.port),
                            options.timeout_seconds));
  }
  Descriptor door =
      options.listener >= 0 ? Descriptor(options.listener) : listen_for_store(options);
  auto server = std::make_shared<StoreServer>(std::move(door), options.token);
  Descriptor socket = server->member();
  const std::string place = fmt::format("{}:{}", options.host, server->port());
  return Store(state_over(std::move(socket), place, options.timeout_seconds, std::move(server)));
}

int Store::invite() const {
  if (state_->server == nullptr)
    throw InternalError({.what = fmt::format("the store at {} is not served here", place()),
                         .why = "only its server can make a socket for a rank that it starts",
                         .fix = "call invite() on what Store::private_server() gave"});
  return state_->server->member().release();
}

void Store::shut() const {
  if (state_->client != nullptr) state_->client->tell(StoreWord::shut, {});
}

Store Store::under(const std::string& name) const {
  State below = *state_;
  below.store = c10::make_intrusive<c10d::PrefixStore>(name, state_->store);
  return Store(std::make_shared<State>(std::move(below)));
}

Store Store::clone() const {
  State other = *state_;
  other.store = state_->store->clone();
  return Store(std::make_shared<State>(std::move(other)));
}

void Store::set(const std::string& key, const std::string& value) const {
  state_->store->set(key, value);
}

std::string Store::get(const std::string& key, double timeout_seconds) const {
  std::string reason;
  try {
    state_->store->wait({key}, store_timeout(timeout_seconds));
    return state_->store->get_to_str(key);
  } catch (const NotInTime&) {
  } catch (const c10::Error& error) {
    reason = ": " + store_reason(error);
  }
  throw CommError({.what = fmt::format("no rank set {} in the store within {} s{}", key,
                                       timeout_seconds, reason),
                   .why = "another rank sets it when it comes to the same point",
                   .fix = "look for a rank that did not start, or ended early"});
}

bool Store::has(const std::string& key) const { return state_->store->check({key}); }
void Store::remove(const std::string& key) const { state_->store->deleteKey(key); }
bool Store::claim(const std::string& key) const { return state_->store->add(key, 1) == 1; }
const std::string& Store::place() const { return state_->place; }
int Store::port() const { return state_->port; }

}  // namespace braid::comm
