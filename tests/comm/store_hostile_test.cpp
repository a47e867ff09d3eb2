// SPDX-License-Identifier: BSD-3-Clause
// Strangers at the ports of a run: they join nothing, end nothing, and hold nothing for long.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <thread>

#include "braid/comm/group.h"
#include "braid/comm/store.h"
#include "comm/descriptor.h"
#include "comm/gloo_door.h"
#include "comm/store_proof.h"
#include "comm/store_wire.h"
#include "support/expect.h"

namespace braid {
namespace {

using comm::Descriptor;
using test::contains;
using test::error_of;

Descriptor stranger_at(int port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in there = {};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<uint16_t>(port));
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&there), sizeof(there)) != 0)
    return Descriptor();
  return socket;
}

// What comes until `count` bytes are there, the other end hangs up, or half a second is over.
std::string heard(const Descriptor& socket, size_t count) {
  std::string bytes(count, '\0');
  size_t done = 0;
  pollfd watched = {.fd = socket.get(), .events = POLLIN, .revents = 0};
  while (done < count && ::poll(&watched, 1, 500) > 0) {
    const ssize_t got = ::recv(socket.get(), bytes.data() + done, count - done, 0);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

bool hung_up(const Descriptor& socket) {
  char byte = 0;
  pollfd watched = {.fd = socket.get(), .events = POLLIN, .revents = 0};
  return ::poll(&watched, 1, 1000) > 0 && ::recv(socket.get(), &byte, 1, 0) <= 0;
}

void say(const Descriptor& socket, const std::string& bytes) {
  EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

TEST(StoreProof, AWrongTokenIsRefused) {
  const comm::Store server = comm::Store::tcp({.server = true, .token = "right"});
  const std::string text =
      error_of([&] { comm::Store::tcp({.port = server.port(), .token = "wrong"}); });
  EXPECT_TRUE(contains(text, "belongs to another job"));
  EXPECT_TRUE(contains(text, "BRAID_JOB_TOKEN"));
  EXPECT_FALSE(comm::Store::tcp({.port = server.port(), .token = "right"}).has("a"));
}

// What was overheard of one connection opens no other one.
TEST(StoreProof, AReplayedHandshakeIsRefused) {
  const comm::Store server = comm::Store::tcp({.server = true, .token = "secret"});
  const Descriptor first = stranger_at(server.port()), second = stranger_at(server.port());
  const std::string one = heard(first, comm::greeting_bytes),
                    two = heard(second, comm::greeting_bytes);
  EXPECT_TRUE(one.starts_with(comm::store_magic));
  EXPECT_NE(one, two);
  const std::string nonce = one.substr(comm::store_magic.size());
  const std::string proof = comm::proof_of("secret", nonce, std::string(32, 'c'));
  say(first, proof);
  EXPECT_EQ(heard(first, 32), comm::welcome_for("secret", nonce, proof)) << "it is a right one";
  say(second, proof);
  EXPECT_EQ(heard(second, 32), std::string(32, '\0'));
  EXPECT_TRUE(hung_up(second));
}

// Nor does a server that does not know the token pass for one that does.
TEST(StoreProof, AFalseServerIsRefused) {
  const comm::Store strangers = comm::Store::tcp({.server = true, .token = "guess"});
  EXPECT_TRUE(
      contains(error_of([&] { comm::Store::tcp({.port = strangers.port(), .token = "secret"}); }),
               "belongs to another job"));
}

TEST(StoreProof, RequestsBeforeTheProofAreNotRead) {
  const comm::Store server = comm::Store::tcp({.server = true, .token = "secret"});
  server.set("key", "value");
  const Descriptor stranger = stranger_at(server.port());
  heard(stranger, comm::greeting_bytes);
  std::string requests;
  for (int i = 0; i < 20; ++i)
    requests += encode(comm::StoreMessage{.kind = comm::StoreWord::get, .id = 1, .words = {"key"}});
  say(stranger, requests);
  EXPECT_FALSE(contains(heard(stranger, 100), "value"));
  EXPECT_TRUE(hung_up(stranger));
}

// 200 silent guests, then rubbish: two ranks meet and add up all the same, and those who said
// nothing are few.
TEST(StoreGuests, SilenceAndRubbishHoldUpNobody) {
  const comm::Store server = comm::Store::tcp({.server = true, .token = "secret"});
  std::vector<Descriptor> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(stranger_at(server.port()));
  for (int i = 0; i < 20; ++i) {
    const Descriptor loud = stranger_at(server.port());
    say(loud, std::string(5000, static_cast<char>(i)));
  }
  std::thread other([&] {
    const comm::Store client = comm::Store::tcp({.port = server.port(), .token = "secret"});
    comm::Group(comm::gloo(client, 1, 2)).barrier().wait();
  });
  comm::Group(comm::gloo(server, 0, 2)).barrier().wait();
  other.join();
  size_t open = 0;
  for (const Descriptor& one : silent) {
    pollfd watched = {.fd = one.get(), .events = POLLRDHUP, .revents = 0};
    open += ::poll(&watched, 1, 0) == 0;
  }
  EXPECT_LE(open, 64U);
}

// Ports at which this process listens, over IPv4.
std::set<int> listening_ports() {
  std::set<std::string> mine;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
    if (name.starts_with("socket:[")) mine.insert(name.substr(8, name.size() - 9));
  }
  std::set<int> ports;
  std::ifstream in("/proc/self/net/tcp");
  std::string line, word, local, state, inode;
  for (std::getline(in, line); std::getline(in, line);) {
    std::istringstream words(line);
    words >> word >> local >> word >> state;
    for (int i = 0; i < 6; ++i) words >> inode;
    if (state == "0A" && mine.contains(inode))
      ports.insert(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
  }
  return ports;
}

bool lets_in(int port) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in there = {};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<uint16_t>(port));
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::connect(socket.get(), reinterpret_cast<sockaddr*>(&there), sizeof(there));
  pollfd watched = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
  return ::poll(&watched, 1, 100) > 0;
}

// The store's port closes as Gloo's opens, which may be given the same descriptor.
TEST(GlooDoor, IsFoundWhereAnotherPortJustClosed) {
  const auto listen = [] {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::listen(socket.get(), 8), 0);
    return socket;
  };
  Descriptor socket = listen();
  const int number = socket.get();
  sockaddr_in mine = {};
  socklen_t length = sizeof(mine);
  const auto door = comm::GlooDoor::around([&] {
    {
      const Descriptor closed = std::move(socket);
    }
    socket = listen();
  });
  ASSERT_EQ(socket.get(), number);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&mine), &length);
  EXPECT_FALSE(lets_in(ntohs(mine.sin_port)));
  const comm::GlooDoor::Open open(*door);
  EXPECT_TRUE(lets_in(ntohs(mine.sin_port)));
}

// Gloo takes anyone who connects for a peer: its port is open only while a group connects.
TEST(GlooDoor, IsShutOnceTheRanksAreConnected) {
  const std::set<int> before = listening_ports();
  const comm::Store store = comm::Store::in_memory();
  std::vector<comm::Group> worlds(2);
  const auto together = [&](const std::function<void(size_t)>& body) {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
  };
  together([&](size_t rank) {
    worlds[rank] = comm::Group(comm::gloo(store, static_cast<int>(rank), 2));
  });
  std::vector<int> ports;
  for (const int port : listening_ports())
    if (!before.contains(port)) ports.push_back(port);
  ASSERT_EQ(ports.size(), 2U) << "one for each rank";
  for (const int port : ports) EXPECT_FALSE(lets_in(port)) << port;
  together([&](size_t rank) {  // a later group opens it again
    const comm::Group turned = worlds[rank].split({1, 0}, "turned");
    turned.barrier().wait();
    worlds[rank].barrier().wait();
  });
  for (const int port : ports) EXPECT_FALSE(lets_in(port)) << port;
}

}  // namespace
}  // namespace braid
