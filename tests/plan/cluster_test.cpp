// SPDX-License-Identifier: BSD-3-Clause
// Clusters: the known ones, files of one's own, and what is wrong with them in a sentence.
#include "braid/plan/cluster.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/expect.h"
#include "support/files.h"

namespace braid::test {
namespace {

const std::string good_file = R"(
name: mine
title: a machine
source: a data sheet
gpus_per_node: 4
nodes: 8
host: {cores: 32, memory: 256 GiB, copy_bandwidth: 2e10}
inside: {latency: 2e-6, bandwidth: 3e11, share: 0.7}
between: {latency: 5e-6, bandwidth: 2.5e10, share: 0.8}
gpu:
  name: A GPU
  memory: 80 GiB
  bandwidth: 2e12
  peak: {bf16: 3e14, fp32: 2e13}
  launch: 5e-6
  gemm_share: 0.8
  stream_share: 0.9
  curves:
    - gemm_nt bf16 1024 1024 1024 1.5e-5
    - copy bf16 1048576 3e-6
)";

struct ClusterFile : testing::Test {
  plan::Cluster load(const std::string& text) const {
    std::ofstream(file) << text;
    return plan::load_cluster(file);
  }
  std::string complaint(const std::string& from, const std::string& to) const {
    std::string text = good_file;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return error_of([&] { load(text); });
  }
  const std::string file =
      (std::filesystem::temp_directory_path() /
       (std::string("cluster_") + testing::UnitTest::GetInstance()->current_test_info()->name() +
        ".yaml"))
          .string();
};

TEST(Cluster, EveryKnownOneIsWhole) {
  for (const std::string& name : plan::known_clusters()) {
    const plan::Cluster cluster = plan::load_cluster(name);
    EXPECT_EQ(cluster.name, name);
    EXPECT_FALSE(cluster.source.empty()) << name;
    EXPECT_GT(cluster.gpu.peak_of(c10::kBFloat16), cluster.gpu.peak_of(c10::kFloat, true)) << name;
    EXPECT_GT(cluster.host.copy_bandwidth, 0) << name;
    EXPECT_LT(cluster.gpu.launch, 1e-4) << name;
  }
  for (const char* name : {"h200", "dgx_a100", "dgx_h100", "perlmutter", "perlmutter_80gb",
                           "kestrel", "raven", "dgx_b200"})
    EXPECT_NO_THROW(plan::load_cluster(name)) << name;
}

TEST(Cluster, NumbersAreThoseOfTheSources) {
  const plan::Cluster perlmutter = plan::load_cluster("perlmutter");
  EXPECT_EQ(perlmutter.gpus_per_node, 4);
  EXPECT_EQ(perlmutter.gpu.bandwidth, 1.555e12);
  EXPECT_EQ(perlmutter.gpu.peak_of(c10::kHalf), 312e12);
  EXPECT_EQ(perlmutter.between.bandwidth, 25e9);
  EXPECT_EQ(plan::load_cluster("raven").between.bandwidth, 25e9 / 4);  // one card for four GPUs
  EXPECT_EQ(plan::load_cluster("kestrel").between.bandwidth, 2 * 25e9 / 4);
  EXPECT_EQ(plan::load_cluster("dgx_b200").inside.bandwidth, 900e9);
}

TEST_F(ClusterFile, IsReadWithItsCurves) {
  const plan::Cluster cluster = load(good_file);
  EXPECT_EQ(cluster.gpus(), 32);
  EXPECT_EQ(cluster.gpu.memory, (Bytes{int64_t{80} << 30}));
  EXPECT_EQ(cluster.gpu.peak_of(c10::kBFloat16), 3e14);
  ASSERT_EQ(cluster.gpu.curves.size(), 2u);
  EXPECT_EQ(cluster.gpu.curves[0].points[0].at, (std::vector<double>{1024, 1024, 1024}));
  EXPECT_EQ(cluster.gpu.curves[0].points[0].seconds, 1.5e-5);
}

TEST_F(ClusterFile, ComesBackFromWhatIsWritten) {
  const plan::Cluster cluster = load(good_file);
  const std::string text = plan::to_yaml(cluster);
  EXPECT_EQ(plan::to_yaml(load(text)), text);
  for (const std::string& name : plan::known_clusters()) {
    const std::string known = plan::to_yaml(plan::load_cluster(name));
    EXPECT_EQ(plan::to_yaml(load(known)), known) << name;
  }
}

TEST(Cluster, UnknownNameIsAnsweredWithTheNearest) {
  const std::string text = error_of([] { plan::load_cluster("perlmuter"); });
  EXPECT_TRUE(contains(text, "did you mean perlmutter?"));
  EXPECT_TRUE(contains(text, "braid bench kernels -o mine.yaml"));
  EXPECT_TRUE(contains(error_of([] { plan::load_cluster("frontier"); }), "never guessed"));
}

TEST_F(ClusterFile, UnknownKeysAreAnsweredWithTheNearest) {
  EXPECT_TRUE(
      contains(complaint("  bandwidth: 2e12", "  bandwith: 2e12"), "did you mean gpu.bandwidth?"));
  EXPECT_TRUE(contains(complaint("bf16: 3e14", "bf61: 3e14"), "did you mean gpu.peak.bf16?"));
  EXPECT_TRUE(
      contains(complaint("latency: 5e-6", "latecy: 5e-6"), "did you mean between.latency?"));
}

TEST_F(ClusterFile, ZeroBandwidthIsRefused) {
  EXPECT_TRUE(contains(complaint("bandwidth: 2.5e10", "bandwidth: 0"),
                       "between.bandwidth = 0 must be above 0"));
  EXPECT_TRUE(contains(complaint("bandwidth: 3e11", "bandwidth: 0"),
                       "inside.bandwidth = 0 must be above 0"));
  EXPECT_TRUE(
      contains(complaint("bandwidth: 2e12", "bandwidth: 0"), "gpu.bandwidth = 0 must be above 0"));
}

TEST_F(ClusterFile, WhatIsNeededAndMissingIsSaid) {
  const std::string peak = complaint("  peak: {bf16: 3e14, fp32: 2e13}\n", "");
  EXPECT_TRUE(contains(peak, "gpu.peak of A GPU is missing"));
  EXPECT_TRUE(contains(peak, "braid bench kernels"));
  EXPECT_TRUE(contains(complaint("  launch: 5e-6\n", ""), "gpu.launch is missing"));
  EXPECT_TRUE(contains(complaint("inside: {latency: 2e-6, bandwidth: 3e11, share: 0.7}\n", ""),
                       "inside.bandwidth is missing"));
  EXPECT_TRUE(contains(complaint("share: 0.8}", "}"), "between.share is missing"));
  const std::string shares = complaint(
      "  gemm_share: 0.8\n  stream_share: 0.9\n  curves:\n    - "
      "gemm_nt bf16 1024 1024 1024 1.5e-5\n    - copy bf16 "
      "1048576 3e-6\n",
      "");
  EXPECT_TRUE(contains(shares, "gpu.gemm_share is missing"));
}

TEST_F(ClusterFile, PeakOfAnotherDtypeIsNotInvented) {
  const plan::Cluster cluster = load(good_file);
  const std::string text = error_of([&] { (void)cluster.gpu.peak_of(c10::kDouble); });
  EXPECT_TRUE(contains(text, "gpu.peak.fp64 of A GPU is missing"));
  EXPECT_TRUE(contains(text, "bf16, fp32"));
  EXPECT_TRUE(contains(error_of([&] { (void)cluster.gpu.peak_of(c10::kFloat, true); }), "tf32"));
}

TEST_F(ClusterFile, BrokenCurvesAreNamed) {
  EXPECT_TRUE(contains(complaint("1048576 3e-6", "1048576"), "has no sizes or no seconds"));
  EXPECT_TRUE(contains(complaint("1048576 3e-6", "many 3e-6"), "has many, which is not a number"));
  EXPECT_TRUE(contains(complaint("copy bf16 1048576 3e-6", "gemm_nt bf16 1048576 3e-6"),
                       "another number of sizes"));
}

}  // namespace
}  // namespace braid::test
