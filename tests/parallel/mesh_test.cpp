// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/mesh.h"

#include <gtest/gtest.h>

#include "support/expect.h"

namespace braid::parallel {
namespace {

using test::contains;
using test::error_of;

TEST(Mesh, OneRankNeedsNothing) {
  const Mesh mesh({}, 1, 0);
  EXPECT_EQ(mesh, Mesh());
  EXPECT_EQ(mesh.world(), 1);
  EXPECT_EQ(to_text(mesh.sizes()), "data 1, shard 1, tensor 1, context 1, pipeline 1, expert 1");
}

TEST(Mesh, AnAxisOfTwoInOneProcessIsRefused) {
  const std::string text = error_of([] { Mesh({.tensor = 2}, 1, 0); });
  EXPECT_TRUE(contains(text, "mesh.tensor = 2 asks for 2 ranks, but this process is the only one"));
  EXPECT_TRUE(contains(text, "this version trains in one process"));
  EXPECT_TRUE(contains(text, "set every mesh axis to 1"));
  EXPECT_TRUE(contains(error_of([] { Mesh({.data = 4, .tensor = 2}, 1, 0); }),
                       "mesh.data = 4 and mesh.tensor = 2 asks for 8 ranks"));
}

TEST(Mesh, ManyRanksAreRefusedWithOrWithoutAFittingMesh) {
  EXPECT_TRUE(contains(error_of([] { Mesh({}, 4, 1); }),
                       "4 ranks were started, but the axes of the mesh multiply to 1"));
  EXPECT_TRUE(contains(error_of([] { Mesh({.data = 4}, 4, 1); }),
                       "mesh.data = 4 asks for 4 ranks, and this build of braid runs one"));
}

TEST(Mesh, ImpossibleSizesAreRefused) {
  EXPECT_TRUE(contains(error_of([] { Mesh({.pipeline = 0}, 1, 0); }), "mesh.pipeline = 0"));
  const int64_t huge = int64_t{1} << 40;
  EXPECT_TRUE(contains(error_of([&] { Mesh({.data = huge, .shard = huge}, 1, 0); }), "mesh.shard"));
  EXPECT_TRUE(contains(error_of([] { Mesh({}, 1, 1); }), "rank 1 of 1"));
}

TEST(MeshOptions, AreReadFromAConfig) {
  const auto sizes = read_options<MeshOptions>(Config::parse("{data: 2, expert: 3}"));
  EXPECT_EQ(sizes, (MeshOptions{.data = 2, .expert = 3}));
  EXPECT_TRUE(
      contains(error_of([] { read_options<MeshOptions>(Config::parse("{tensr: 2}")); }), "tensor"));
}

}  // namespace
}  // namespace braid::parallel
