// SPDX-License-Identifier: BSD-3-Clause
// braid bench: measures this machine and writes a cluster file that braid reads.
#include <gtest/gtest.h>

#include "braid/plan/cluster.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

TEST_F(Cli, BenchKernelsWritesACluster) {
  const Outcome done = braid_run({"bench", "kernels", "--device", "cpu", "--small", "--dtype",
                                  "fp32", "--only", "gemm", "-o", at("mine.yaml")});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* part : {"gemm_nt", "of the peak", "for a kernel", "wrote"})
    EXPECT_TRUE(contains(done.out, part));
  const plan::Cluster cluster = plan::load_cluster(at("mine.yaml"));
  EXPECT_EQ(cluster.name, "mine");
  EXPECT_EQ(cluster.gpu.curves.size(), 3u);
}

TEST_F(Cli, BenchCommMeasuresAndUpdatesTheLinkInside) {
  ASSERT_EQ(braid_run({"bench", "kernels", "--device", "cpu", "--small", "--dtype", "fp32",
                       "--only", "gemm", "-o", at("mine.yaml")})
                .code,
            0);
  const Outcome done = braid_run({"bench", "comm", "--ranks", "2", "--device", "cpu", "--largest",
                                  "64 KiB", "--repetitions", "3", "--cluster", at("mine.yaml"),
                                  "--dir", at("comm"), "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const nlohmann::json json = json_of(done);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["link"], "inside");
  EXPECT_EQ(json["points"].size(), 6u * 4u);
  for (const nlohmann::json& point : json["points"]) EXPECT_GT(point["seconds"], 0);
  const plan::Cluster cluster = plan::load_cluster(at("mine.yaml"));
  EXPECT_EQ(cluster.gpus_per_node, 2);
  EXPECT_GT(cluster.inside.bandwidth, 1e6);
  EXPECT_FALSE(cluster.gpu.curves.empty());
}

TEST_F(Cli, BenchSaysWhatItCannotDo) {
  const auto complaint = [&](Words words) {
    const Outcome done = braid_run(std::move(words));
    EXPECT_NE(done.code, 0);
    return done.err;
  };
  EXPECT_TRUE(contains(complaint({"bench", "comm"}), "a single rank has no other rank to talk to"));
  EXPECT_TRUE(contains(complaint({"bench", "comm", "--ranks", "2", "--cluster", "dgx_a100"}),
                       "has no file of its own"));
  EXPECT_TRUE(contains(complaint({"bench", "comm", "--ranks", "2", "-o", at("x.yaml")}),
                       "links alone are no cluster"));
  EXPECT_TRUE(contains(complaint({"bench", "comm", "--ranks", "2", "--smallest", "tiny"}),
                       "--smallest tiny is not a size"));
  EXPECT_TRUE(contains(complaint({"bench", "kernels", "--dtype", "bf17"}), "--dtype bf16"));
}

}  // namespace
}  // namespace braid::test
