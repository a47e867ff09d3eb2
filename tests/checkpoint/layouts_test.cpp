// SPDX-License-Identifier: BSD-3-Clause
// Saved by some ranks in one layout, read by others in another: every bit is there.
#include "checkpoint/layouts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "braid/checkpoint/safetensors.h"
#include "checkpoint/split.h"
#include "support/expect.h"
#include "support/files.h"
#include "support/ranks.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

void save_as(Layout layout, int ranks, const fs::path& dir, int64_t step = 1) {
  test::on_ranks(ranks, [&](comm::Group world) {
    Store store(dir, {.keep = 9}, world);
    store.save({.step = step,
                .state = state_of(layout, world.rank(), world.size(), step),
                .metrics = {{"loss", 0.5}},
                .config = "seed: 1\n"});
    store.wait();
    EXPECT_TRUE(fs::exists(dir / fmt::format("step-{:08}", step) / "manifest.json"))
        << "rank " << world.rank();
  });
}

void expect_found(const Store& store, Layout layout, const comm::Group& world,
                  const std::string& note) {
  const State want = state_of(layout, world.rank(), world.size(), 1);
  const State got = emptied(want);
  const auto found = store.newest([&](const Reader& reader) { reader.fill(got); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->snapshot.step, 1);
  EXPECT_EQ(found->snapshot.state.integer("loader/seen"), 123);
  EXPECT_EQ(found->snapshot.config, "seed: 1\n");
  expect_equal(
      got, want,
      fmt::format("{} -> {} on rank {} of {}", note, name_of(layout), world.rank(), world.size()));
}

struct AnyRanks : testing::TestWithParam<int> {};

TEST_P(AnyRanks, ReadWhatTheseWrote) {
  const int ranks = GetParam();
  const test::TempDir dir;
  for (const Layout saved : layouts) save_as(saved, ranks, dir / name_of(saved));
  for (int readers = 1; readers <= 4; ++readers)
    test::on_ranks(readers, [&](comm::Group world) {
      for (const Layout saved : layouts)
        for (const Layout layout : layouts)
          expect_found(Store(dir / name_of(saved), {}, world), layout, world,
                       fmt::format("{} on {} ranks", name_of(saved), ranks));
    });
  for (const Layout saved : layouts) {
    const fs::path made = dir / name_of(saved) / "step-00000001";
    expect_equal(load(made).state, state_of(Layout::whole, 0, 1, 1), name_of(saved));
    EXPECT_EQ(load(made, Parts::weights).state.tensors.size(), model_shapes().size());
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, AnyRanks, testing::Values(1, 2, 3, 4));

TEST(Layouts, ARankWritesItsShareAndNothingElse) {
  const test::TempDir dir;
  save_as(Layout::whole, 3, dir / "ck");
  std::vector<std::string> names;
  std::vector<int64_t> elements;
  for (const auto& item : fs::directory_iterator(dir / "ck/step-00000001"))
    names.push_back(item.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(fmt::format("{}", fmt::join(names, " ")),
            "config.yaml manifest.json shard-00000-of-00003.safetensors "
            "shard-00001-of-00003.safetensors shard-00002-of-00003.safetensors");
  for (int rank = 0; rank < 3; ++rank) {
    int64_t count = 0;
    const auto file = read_safetensors(
        dir / fmt::format("ck/step-00000001/shard-{:05}-of-00003.safetensors", rank));
    EXPECT_EQ(file.metadata.at("rank"), std::to_string(rank));
    for (const auto& [name, tensor] : file.tensors) count += tensor.numel();
    elements.push_back(count);
  }
  // 65 weights, 65 averages and 5 counts of steps.
  EXPECT_EQ(fmt::format("{}", fmt::join(elements, " ")), "45 45 45");
}

TEST(Layouts, ProcessesSaveAndRead) {
  test::on_processes(2, [&](comm::Group world) {
    const fs::path ck = fs::temp_directory_path() / fmt::format("braid-layouts-{}", getppid());
    Store store(ck, {}, world);
    const State want = state_of(Layout::flat, world.rank(), 2, 1);
    store.save({.step = 1, .state = want});
    const State got = emptied(want);
    EXPECT_TRUE(store.newest([&](const Reader& reader) { reader.fill(got); }));
    expect_equal(got, want, "");
    world.barrier().wait();
    if (world.rank() == 0) fs::remove_all(ck);
  });
}

// A layout may change between two saves of one store.
TEST(Layouts, TheShareFollowsTheState) {
  const test::TempDir dir;
  test::on_ranks(2, [&](comm::Group world) {
    Store store(dir / "ck", {.keep = 9}, world);
    for (int64_t step = 1; step <= 4; ++step)
      store.save(
          {.step = step,
           .state = state_of(step % 2 == 0 ? Layout::flat : Layout::whole, world.rank(), 2, step)});
    store.wait();
  });
  for (int64_t step = 1; step <= 4; ++step)
    expect_equal(load(dir / fmt::format("ck/step-{:08}", step)).state,
                 state_of(Layout::whole, 0, 1, step), "");
}

std::vector<Holding> held(const std::string& name, int64_t first, int64_t count) {
  return {{name, c10::kFloat, {10}, first, count}};
}

TEST(Split, EqualHoldersShareByBytes) {
  std::vector<Holding> one = {{"a", c10::kByte, {4}, 0, 4}, {"b", c10::kDouble, {4}, 0, 4}};
  const std::vector<std::vector<Holding>> ranks(3, one);  // 36 bytes: cuts at 12 and 24
  EXPECT_EQ(runs_of(ranks, 0), (std::vector<WrittenRun>{{"a", 0, 4}, {"b", 0, 1}}));
  EXPECT_EQ(runs_of(ranks, 1), (std::vector<WrittenRun>{{"b", 1, 2}}));
  EXPECT_EQ(runs_of(ranks, 2), (std::vector<WrittenRun>{{"b", 3, 1}}));
}

TEST(Split, HolesAndDifferencesAreNamed) {
  EXPECT_TRUE(contains(error_of([] { runs_of({held("w", 0, 4), held("w", 6, 4)}, 0); }),
                       "no rank holds the elements 4 to 5 of w"));
  EXPECT_TRUE(contains(error_of([] { runs_of({held("w", 0, 4), held("w", 4, 4)}, 0); }),
                       "no rank holds the elements 8 to 9 of w"));
  auto other = held("w", 0, 10);
  other[0].dtype = c10::kDouble;
  EXPECT_TRUE(contains(error_of([&] { runs_of({held("w", 0, 10), other}, 1); }),
                       "w is Float [10] on rank 0 and Double [10] on rank 1"));
}

}  // namespace
}  // namespace braid::checkpoint
