// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/world.h"

#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "support/expect.h"

namespace braid::launch {
namespace {

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(any);
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&any), &length), 0);
  ::close(socket);
  return ntohs(any.sin_port);
}

Environment place(int rank, int world, const std::string& host, int port) {
  Environment here;
  here.rank = rank;
  here.world = world;
  here.master_address = host;
  here.master_port = port;
  return here;
}

TEST(World, OneRankAloneNeedsNoNetwork) {
  const comm::Group world = open_world(Environment());
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.backend(), nullptr);
}

TEST(World, RanksMeetWhereTheEnvironmentSays) {
  const int count = 3, port = free_port();
  std::vector<double> sums(count);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < count; ++rank)
    ranks.emplace_back([&, rank] {
      const comm::Group world =
          open_world(place(rank, count, "127.0.0.1", port), {.timeout_seconds = 20});
      const at::Tensor x = at::full({2}, rank + 1, at::kDouble);
      world.all_reduce(x).wait();
      sums[static_cast<size_t>(world.rank())] = x[0].item<double>();
    });
  for (std::thread& rank : ranks) rank.join();
  for (const double sum : sums) EXPECT_EQ(sum, 6);
}

TEST(World, SaysWhatIsMissing) {
  const std::string text = test::error_of([] { open_world(place(1, 4, "", 0)); });
  EXPECT_TRUE(test::contains(text, "rank 1 of 4 does not know where to meet the others"));
  EXPECT_TRUE(test::contains(text, "export MASTER_ADDR=<host of rank 0> MASTER_PORT=29500"));
}

TEST(World, NamesAnUnknownHost) {
  const std::string text =
      test::error_of([] { open_world(place(1, 2, "no-such-host.invalid", 29500)); });
  EXPECT_TRUE(test::contains(text, "the host no-such-host.invalid is not known"));
}

}  // namespace
}  // namespace braid::launch
