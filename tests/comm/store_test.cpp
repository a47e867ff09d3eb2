// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/store.h"

#include <gtest/gtest.h>

#include <thread>

#include "braid/comm/group.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid {
namespace {

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
  const std::string text = test::error_of([&] { store.get("never", 0.05); });
  EXPECT_TRUE(test::contains(text, "no rank set never in the store within 0.05 s"));
}

TEST(Store, InMemory) { use(comm::Store::in_memory()); }

TEST(Store, InAFile) {
  const test::TempDir dir;
  use(comm::Store::file((dir / "store").string(), 1));
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

TEST(Store, GlooNamesTheRankThatDidNotCome) {
  const std::string text =
      test::error_of([] { comm::gloo(comm::Store::in_memory(), 0, 2, {.timeout_seconds = 0.1}); });
  EXPECT_TRUE(test::contains(
      text, "rank 0 of 2 at 127.0.0.1 does not reach all others: rank 1 did not come"));
}

TEST(Store, SaysThatThereIsNone) {
  int port = 0;
  {
    const comm::Store gone = comm::Store::tcp({.server = true});
    port = gone.port();
  }
  const std::string text =
      test::error_of([&] { comm::Store::tcp({.port = port, .timeout_seconds = 0.2}); });
  EXPECT_TRUE(test::contains(text, "no store at 127.0.0.1:" + std::to_string(port)));
  EXPECT_TRUE(test::contains(text, "check that rank 0 runs"));
}

}  // namespace
}  // namespace braid
