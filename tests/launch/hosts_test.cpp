// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/hosts.h"

#include <gtest/gtest.h>

#include "braid/launch/options.h"
#include "support/expect.h"

namespace braid::launch {
namespace {

using Names = std::vector<std::string>;

TEST(Hosts, EveryFormOfAList) {
  EXPECT_EQ(expand_hosts("a"), (Names{"a"}));
  EXPECT_EQ(expand_hosts("h0 h1"), (Names{"h0", "h1"}));
  EXPECT_EQ(expand_hosts("a,b"), (Names{"a", "b"}));
  EXPECT_EQ(expand_hosts("10.1.0.4\n10.1.0.5\n"), (Names{"10.1.0.4", "10.1.0.5"}));
  EXPECT_EQ(expand_hosts("p[05-09]"), (Names{"p05", "p06", "p07", "p08", "p09"}));
  EXPECT_EQ(expand_hosts("raven[0123,0124]"), (Names{"raven0123", "raven0124"}));
  EXPECT_EQ(expand_hosts("a[5-7],b1"), (Names{"a5", "a6", "a7", "b1"}));
  EXPECT_EQ(expand_hosts("n[9-11]"), (Names{"n9", "n10", "n11"}));
  EXPECT_EQ(expand_hosts("n[008-010,3]x"), (Names{"n008x", "n009x", "n010x", "n3x"}));
  EXPECT_EQ(expand_hosts("n[1-2]-ib[0,3]"), (Names{"n1-ib0", "n1-ib3", "n2-ib0", "n2-ib3"}));
  EXPECT_EQ(expand_hosts("r[1-2],login.x.org n[3]"), (Names{"r1", "r2", "login.x.org", "n3"}));
  EXPECT_EQ(expand_hosts(""), Names());
}

TEST(Hosts, WhatIsNoListIsNamed) {
  for (const char* list : {"n[1-", "n[]", "n]1[", "n[a-b]", "n[5-3]", "n[1-2", "n[0-99999999]"})
    EXPECT_TRUE(test::contains(test::error_of([&] { expand_hosts(list); }),
                               std::string("\"") + list + "\" is not a list of hosts"));
}

TEST(Hosts, TasksOfEachNode) {
  EXPECT_EQ(expand_counts("3,1"), (std::vector<int>{3, 1}));
  EXPECT_EQ(expand_counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts(""), std::vector<int>());
  EXPECT_TRUE(test::contains(test::error_of([] { expand_counts("2(x3"); }), "\"2(x3\""));
}

TEST(LaunchOptions, LimitsStandInOrder) {
  for (const double seconds : {1.0, 2.5, 300.0, 86400.0}) {
    const comm::Timeouts limits = timeouts({.timeout = {seconds}});
    EXPECT_GT(limits.store, 0);
    EXPECT_LT(limits.store, limits.collective);
    EXPECT_LT(limits.collective, limits.step);
    EXPECT_LT(limits.step, limits.start);
    EXPECT_EQ(limits.collective, seconds);
  }
}

TEST(LaunchOptions, AreAConfigSection) {
  const auto options = read_options<Options>(
      Config::parse("{timeout: 1m30s, port: 5000, share_gpu: true, interface: ib0}", "x.yaml"));
  EXPECT_EQ(options.timeout.count, 90);
  EXPECT_EQ(options.port, 5000);
  EXPECT_TRUE(options.share_gpu);
  EXPECT_EQ(options.interface, "ib0");
}

}  // namespace
}  // namespace braid::launch
