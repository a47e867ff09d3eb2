// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "braid/comm/group.h"
#include "comm/store_board.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid {
namespace {

using test::contains;
using test::error_of;

void use(const comm::Store& store) {
  EXPECT_FALSE(store.has("a"));
  store.set("a", "1");
  EXPECT_TRUE(store.has("a"));
  EXPECT_EQ(store.get("a"), "1");
  const comm::Store below = store.under("x");
  EXPECT_FALSE(below.has("a")) << "another place";
  below.set("a", "2");
  EXPECT_EQ(store.get("a"), "1");
  store.remove("a");
  EXPECT_FALSE(store.has("a"));
  EXPECT_EQ(below.get("a"), "2");
  EXPECT_TRUE(store.claim("c"));
  EXPECT_FALSE(store.clone().claim("c"));
  store.set("bytes", std::string("\0\n\xff", 3));
  EXPECT_EQ(store.get("bytes"), std::string("\0\n\xff", 3));
  const std::string text = error_of([&] { store.get("never", 0.05); });
  EXPECT_TRUE(contains(text, "no rank set never in the store within 0.05 s"));
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Store, InMemory) { use(comm::Store::in_memory()); }

TEST(Store, InAFile) {
  const test::TempDir dir;
  use(comm::Store::file((dir / "store").string(), 1));
}

TEST(Store, OverASocketThatAProcessIsBornWith) {
  const comm::Store server = comm::Store::private_server();
  EXPECT_EQ(server.port(), 0);
  use(comm::Store::inherited(server.invite()));
  EXPECT_EQ(server.get("bytes").size(), 3U) << "one board";
  const int socket = server.invite();
  const comm::Store first = comm::Store::inherited(socket);
  EXPECT_TRUE(contains(error_of([&] { comm::Store::inherited(socket); }),
                       "is not the socket of the launcher's store"));
}

TEST(Store, OfTorchrun) {
  const comm::Store agents = comm::Store::torchrun({.server = true, .token = "t"});
  use(agents);
}

// Whoever reaches torchrun's store may write there; it does not pass for a text of the job.
TEST(Store, ATextOfAStrangerInTorchrunsStoreIsNamed) {
  const comm::Store ours = comm::Store::torchrun({.server = true, .token = "secret"});
  const comm::Store theirs = comm::Store::torchrun({.port = ours.port(), .token = "guess"});
  theirs.set("alarm", "hello");
  EXPECT_TRUE(contains(error_of([&] { ours.get("alarm", 1); }),
                       "the text at alarm in the store was not written by a rank of this job"));
  ours.set("alarm", "mine");
  theirs.set("verdict", "x");
  EXPECT_EQ(ours.get("alarm"), "mine");
  EXPECT_NE(error_of([&] { theirs.get("alarm", 1); }), "") << "and the other way round";
}

TEST(Store, OverTcpTheRanksFindEachOther) {
  const comm::Store server = comm::Store::tcp({.server = true});
  EXPECT_GT(server.port(), 0);
  use(server);
  std::thread other([port = server.port()] {
    const comm::Store client = comm::Store::tcp({.port = port});
    comm::Group(comm::gloo(client, 1, 2)).barrier().wait();
  });
  comm::Group(comm::gloo(server, 0, 2)).barrier().wait();
  other.join();
}

TEST(Store, ManyClientsAndThreadsWaitSideBySide) {
  const comm::Store server = comm::Store::tcp({.server = true});
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 40; ++i)
    threads.emplace_back([&, i] {
      const comm::Store mine = comm::Store::tcp({.port = server.port()});
      std::thread waits([&] { right += mine.get("go", 10) == "1"; });  // over one connection
      mine.set("key" + std::to_string(i), std::to_string(i));
      for (int k = 0; k < 40; ++k)
        right += mine.get("key" + std::to_string(k), 10) == std::to_string(k);
      server.set("done" + std::to_string(i), "");
      waits.join();
    });
  for (int i = 0; i < 40; ++i) server.get("done" + std::to_string(i), 10);
  server.set("go", "1");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 40 * 41);
}

TEST(Store, AClientThatGoesDisturbsNobody) {
  const comm::Store server = comm::Store::tcp({.server = true});
  std::optional<comm::Store> gone = comm::Store::tcp({.port = server.port()});
  EXPECT_NE(error_of([&] { gone->get("late", 0.01); }), "") << "its wait is taken back";
  gone.reset();
  const comm::Store other = comm::Store::tcp({.port = server.port()});
  server.set("late", "1");
  EXPECT_EQ(other.get("late"), "1");
}

TEST(Store, AServerThatGoesIsAnErrorAtOnce) {
  std::optional<comm::Store> server = comm::Store::tcp({.server = true});
  const comm::Store client = comm::Store::tcp({.port = server->port()});
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server.reset();
  });
  std::string text;
  EXPECT_LT(seconds_of([&] { text = error_of([&] { client.get("never", 20); }); }), 5);
  ends.join();
  EXPECT_TRUE(contains(text, "has closed the connection"));
  EXPECT_TRUE(contains(error_of([&] { client.has("a"); }), "has closed the connection"));
}

TEST(Store, NobodyJoinsOnceItIsShut) {
  const comm::Store server = comm::Store::tcp({.server = true});
  const comm::Store client = comm::Store::tcp({.port = server.port()});
  client.shut();
  EXPECT_FALSE(client.has("a")) << "those inside stay";
  EXPECT_TRUE(contains(
      error_of([&] { comm::Store::tcp({.port = server.port(), .timeout_seconds = 0.05}); }),
      "Connection refused"));
}

TEST(Store, GlooNamesTheRankThatDidNotCome) {
  const std::string text =
      error_of([] { comm::gloo(comm::Store::in_memory(), 0, 2, {.timeout_seconds = 0.1}); });
  EXPECT_TRUE(
      contains(text, "rank 0 of 2 at 127.0.0.1 does not reach all others: rank 1 did not come"));
}

TEST(Store, SaysThatThereIsNone) {
  int port = 0;
  {
    const comm::Store gone = comm::Store::tcp({.server = true});
    port = gone.port();
  }
  const std::string text =
      error_of([&] { comm::Store::tcp({.port = port, .timeout_seconds = 0.2}); });
  EXPECT_TRUE(contains(text, "no store at 127.0.0.1:" + std::to_string(port)));
  EXPECT_TRUE(contains(text, "check that rank 0 runs"));
}

// What it holds is bounded; a text too many is refused with its key, and what is there stays.
TEST(StoreBoard, HoldsNoMoreThanItsLimit) {
  std::vector<comm::StoreMessage> answers;
  const auto keep = [&](uint64_t, comm::StoreMessage answer) { answers.push_back(answer); };
  comm::StoreBoard board(keep, /*most_bytes=*/1000);
  for (const char* key : {"a", "b", "a"})
    board.handle(1, {.kind = comm::StoreWord::set, .words = {key, std::string(400, 'x')}});
  ASSERT_EQ(answers.size(), 0U) << "the same key again takes no more room";
  board.handle(1, {.kind = comm::StoreWord::set, .words = {"c", std::string(400, 'x')}});
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].kind, comm::StoreWord::refused);
  EXPECT_TRUE(contains(answers[0].words[0], "the store is full: 1000 bytes are its limit, and c"));
  board.handle(1, {.kind = comm::StoreWord::remove, .words = {"a"}});
  board.handle(1, {.kind = comm::StoreWord::get, .id = 7, .words = {"c"}});
  board.handle(2, {.kind = comm::StoreWord::set, .words = {"c", "now"}});
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[1].id, 7U);
  EXPECT_EQ(answers[1].words, std::vector<std::string>{"now"});
  board.handle(1, {.kind = comm::StoreWord::add, .id = 8, .words = {"only one word"}});
  EXPECT_EQ(answers.back().kind, comm::StoreWord::refused);
}

}  // namespace
}  // namespace braid
