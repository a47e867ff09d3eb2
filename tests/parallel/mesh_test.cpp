// SPDX-License-Identifier: BSD-3-Clause
// Ranks on axes: sizes, order, and who stands in a group with whom.
#include "braid/parallel/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include <ATen/ops/full.h>

#include "support/expect.h"
#include "support/ranks.h"

namespace braid::parallel {
namespace {

using test::contains;
using test::error_of;

// "01|23" as the reference lists write groups.
std::string groups_text(const Mesh& mesh, const Axes& axes) {
  std::string text;
  for (const std::vector<int>& group : mesh.all_groups(axes)) {
    if (!text.empty()) text += '|';
    for (const int rank : group) text += std::to_string(rank);
  }
  return text;
}

Mesh cube(const std::string& order) {
  return Mesh({.data = 2, .tensor = 2, .context = 2, .order = order}, 8, 0);
}

TEST(Mesh, OneRankNeedsNothing) {
  const Mesh mesh({}, 1, 0);
  EXPECT_EQ(mesh, Mesh());
  EXPECT_EQ(mesh.world(), 1);
  EXPECT_EQ(mesh.batch_ranks(), 1);
  EXPECT_EQ(to_text(mesh.sizes()), "data 1, shard 1, tensor 1, context 1, pipeline 1, expert 1");
  EXPECT_EQ(mesh.group(comm::Group(), {Axis::data, Axis::shard}).size(), 1);
}

TEST(Mesh, ReferenceListsOfEightRanks) {
  const Mesh first = cube("tp-cp-dp");
  EXPECT_EQ(groups_text(first, {Axis::tensor}), "01|23|45|67");
  EXPECT_EQ(groups_text(first, {Axis::context}), "02|13|46|57");
  EXPECT_EQ(groups_text(first, {Axis::data}), "04|15|26|37");
  EXPECT_EQ(groups_text(first, {Axis::tensor, Axis::context}), "0123|4567");
  EXPECT_EQ(groups_text(first, {Axis::data, Axis::context}), "0246|1357");
  EXPECT_EQ(groups_text(first, {Axis::pipeline}), "0|1|2|3|4|5|6|7");
  const Mesh second = cube("cp-tp-dp");
  EXPECT_EQ(groups_text(second, {Axis::context}), "01|23|45|67");
  EXPECT_EQ(groups_text(second, {Axis::tensor}), "02|13|46|57");
  EXPECT_EQ(groups_text(second, {Axis::data}), "04|15|26|37");
  const Mesh third = cube("dp-tp-cp");
  EXPECT_EQ(groups_text(third, {Axis::data}), "01|23|45|67");
  EXPECT_EQ(groups_text(third, {Axis::tensor}), "02|13|46|57");
  EXPECT_EQ(groups_text(third, {Axis::context}), "04|15|26|37");
  const Mesh four({.tensor = 4, .order = "tp-cp-dp"}, 8, 0);
  EXPECT_EQ(groups_text(four, {Axis::tensor}), "0123|4567");
  EXPECT_EQ(groups_text(four, {Axis::data}), "04|15|26|37");
}

// For every order: groups share out the ranks, and members differ in the asked axes alone.
TEST(Mesh, GroupsOfAnySetOfAxesShareOutTheRanks) {
  std::vector<std::string> names = {"tp", "cp", "ep", "fsdp", "pp", "data"};
  std::sort(names.begin(), names.end());
  int orders = 0;
  do {
    if (++orders % 37 != 0) continue;  // 19 of the 720
    std::string order = names[0];
    for (size_t i = 1; i < names.size(); ++i) order += "-" + names[i];
    const MeshOptions options{
        .shard = 2, .tensor = 3, .context = 2, .pipeline = 2, .expert = 1, .order = order};
    for (const Axes& axes : {Axes{Axis::tensor},
                             {Axis::data, Axis::shard},
                             {Axis::pipeline, Axis::tensor, Axis::context},
                             {}}) {
      std::set<int> seen;
      for (const std::vector<int>& group : Mesh(options, 48, 0, 1).all_groups(axes)) {
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
        for (const int rank : group) {
          const Mesh here(options, 48, rank, 1);
          EXPECT_TRUE(seen.insert(rank).second);
          EXPECT_EQ(here.ranks_of(axes), group);
          for (const Axis axis : {Axis::data, Axis::shard, Axis::tensor, Axis::context})
            if (std::find(axes.begin(), axes.end(), axis) == axes.end())
              EXPECT_EQ(here.index(axis), Mesh(options, 48, group[0], 1).index(axis));
        }
      }
      EXPECT_EQ(seen.size(), 48u);
    }
  } while (std::next_permutation(names.begin(), names.end()));
}

TEST(Mesh, TheBatchIsSharedByDataShardAndExpert) {
  const MeshOptions options{.shard = 2, .tensor = 2, .expert = 3};
  std::map<int64_t, int> seen;
  for (int rank = 0; rank < 24; ++rank) {
    const Mesh mesh(options, 24, rank, 3);
    EXPECT_EQ(mesh.batch_ranks(), 12);
    ++seen[mesh.batch_rank()];
    EXPECT_EQ(mesh.batch_rank(), rank / 2);  // tensor varies fastest: both see the same samples
  }
  EXPECT_EQ(seen.size(), 12u);
}

TEST(MeshSizes, DataTakesTheRestAndZeroAllOfData) {
  EXPECT_EQ(resolve({.tensor = 2}, 6).data, 3);
  EXPECT_EQ(resolve({}, 7).data, 7);
  EXPECT_EQ(resolve({}, 7).shard, 1);
  for (const auto& data : {std::optional<int64_t>(), std::optional<int64_t>(6)}) {
    const MeshOptions sizes = resolve({.data = data}, 6, 2);
    EXPECT_EQ(sizes.data, 1);
    EXPECT_EQ(sizes.shard, 6);
  }
  const MeshOptions hybrid = resolve({.shard = 2}, 6, 3);
  EXPECT_EQ(hybrid.data, 3);
  EXPECT_EQ(resolve({}, 1, 3).shard, 1);
  EXPECT_EQ(resolve(hybrid, 6, 3), hybrid);  // what is resolved stays
}

TEST(MeshSizes, ThatDoNotMakeUpTheWorldAreRefused) {
  EXPECT_TRUE(contains(error_of([] { resolve({.tensor = 2}, 1); }),
                       "mesh.tensor = 2 asks for 2 ranks, but this process is the only one"));
  EXPECT_TRUE(contains(error_of([] { resolve({.data = 4, .tensor = 2}, 1); }),
                       "mesh.data = 4 and mesh.tensor = 2 asks for 8 ranks"));
  std::string text = error_of([] { resolve({.data = 4}, 6); });
  EXPECT_TRUE(contains(text, "6 ranks were started, but the axes of the mesh multiply to 4"));
  EXPECT_TRUE(contains(text, "set mesh.data=6 (or leave it out: it takes the rest), or start 4"));
  text = error_of([] { resolve({.tensor = 2, .context = 2}, 6); });
  EXPECT_TRUE(
      contains(text, "6 ranks were started, but mesh.tensor = 2 and mesh.context = 2 take 4 or"));
  EXPECT_TRUE(contains(text, "start 4 or 8 ranks"));
  text = error_of([] { resolve({.shard = 4}, 6, 3); });
  EXPECT_TRUE(contains(text, "mesh.shard = 4 does not divide the 6 ranks that share the batch"));
  EXPECT_TRUE(contains(text, "set mesh.shard to one of 1, 2, 3, 6, or start 4 or 8 ranks"));
  text = error_of([] { resolve({.data = 2}, 6, 1); });
  EXPECT_TRUE(contains(text, "multiply to 2 (data 1, shard 2"));
  EXPECT_TRUE(
      contains(text, "set mesh.data=6 (or leave it out: it takes the rest), or mesh.shard=3"));
  EXPECT_TRUE(contains(error_of([] { Mesh({.pipeline = 0}, 1, 0); }), "mesh.pipeline = 0"));
  const int64_t huge = int64_t{1} << 40;
  EXPECT_TRUE(contains(error_of([&] { Mesh({.data = huge, .shard = huge}, 1, 0); }), "mesh.shard"));
  EXPECT_TRUE(contains(error_of([] { Mesh({}, 1, 1); }), "rank 1 of 1"));
}

TEST(MeshSizes, AShardThatDoesNothingIsRefused) {
  EXPECT_TRUE(
      contains(error_of([] { resolve({.shard = 2}, 4); }), "mesh.shard = 2 with train.zero = 0"));
  EXPECT_TRUE(contains(error_of([] { resolve({.shard = 1}, 4, 2); }),
                       "train.zero = 2 with mesh.shard = 1, and mesh.data = 4"));
}

TEST(MeshOrder, NamesAllAxesOnceAndShardGoesWithData) {
  EXPECT_EQ(resolve({.tensor = 2, .order = "dp-tp"}, 8, 1).order,
            "shard-data-tensor-context-expert-pipeline");
  EXPECT_EQ(resolve({.shard = 2, .order = "fsdp"}, 8, 1).order,
            "shard-data-tensor-context-expert-pipeline");
  EXPECT_EQ(resolve({.order = ""}, 1).order, MeshOptions().order);
  std::string text = error_of([] { resolve({.order = "tp-datta"}, 1); });
  EXPECT_TRUE(contains(text, "mesh.order = tp-datta names \"datta\""));
  EXPECT_TRUE(contains(text, "did you mean data?"));
  EXPECT_TRUE(contains(error_of([] { resolve({.order = "tp--dp"}, 1); }), "names \"\""));
  EXPECT_TRUE(contains(error_of([] { resolve({.order = "tp-tensor"}, 1); }), "tensor twice"));
  text = error_of([] { resolve({.context = 2, .order = "tp-dp"}, 4); });
  EXPECT_TRUE(contains(text, "mesh.order = tp-dp leaves out context, which has 2 ranks"));
  EXPECT_TRUE(contains(text, "set mesh.order=tp-dp-context"));
}

TEST(MeshOptions, AreReadFromAConfigAndWrittenBack) {
  const auto sizes = read_options<MeshOptions>(Config::parse("{data: 2, expert: 3, order: ep-dp}"));
  EXPECT_EQ(sizes, (MeshOptions{.data = 2, .expert = 3, .order = "ep-dp"}));
  EXPECT_TRUE(
      contains(error_of([] { read_options<MeshOptions>(Config::parse("{tensr: 2}")); }), "tensor"));
  for (MeshOptions options : {MeshOptions{}, sizes, MeshOptions{.shard = 4}}) {
    WriteFields fields;
    describe(fields, options);
    EXPECT_EQ(read_options<MeshOptions>(fields.config, {.data = 9, .shard = 9}), options);
  }
}

TEST(MeshGroups, AreSplitOnceAndTalkToTheRightRanks) {
  test::on_ranks(6, [](comm::Group world) {
    const Mesh mesh({.shard = 3}, 6, world.rank(), 1);
    const comm::Group shard = mesh.group(world, {Axis::shard, Axis::tensor});
    const comm::Group data = mesh.group(world, {Axis::data});
    const comm::Group both = mesh.group(world, {Axis::shard, Axis::data});
    EXPECT_EQ(shard.name(), "shard");
    EXPECT_EQ(both.name(), "data-shard");
    EXPECT_EQ(shard.ranks(), mesh.ranks_of({Axis::shard}));
    EXPECT_TRUE(Mesh(mesh).group(world, {Axis::shard}) == shard);
    EXPECT_EQ(mesh.group(world, {Axis::pipeline}).size(), 1);
    const at::Tensor sum = at::full({1}, 1 << world.rank(), at::kLong);
    const at::Tensor rows = sum.clone(), all = sum.clone();
    data.all_reduce(sum).wait();
    shard.all_reduce(rows).wait();
    both.all_reduce(all).wait();
    EXPECT_EQ(sum.item<int64_t>(), 0b1001 << world.rank() % 3);
    EXPECT_EQ(rows.item<int64_t>(), 0b111 << world.rank() / 3 * 3);
    EXPECT_EQ(all.item<int64_t>(), 0b111111);
    EXPECT_TRUE(contains(error_of([&] { mesh.group(shard, {Axis::data}); }), "in the mesh"));
  });
}

}  // namespace
}  // namespace braid::parallel
