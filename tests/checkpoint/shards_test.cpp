// SPDX-License-Identifier: BSD-3-Clause
// What happens to checkpoints of several ranks when files are broken.
#include <fmt/format.h>

#include <fstream>

#include "checkpoint/layouts.h"
#include "support/expect.h"
#include "support/files.h"
#include "support/ranks.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

fs::path folder(const fs::path& dir, int64_t step) { return dir / fmt::format("step-{:08}", step); }
fs::path shard_of(const fs::path& dir, int64_t step, int rank) {
  return folder(dir, step) / fmt::format("shard-{:05}-of-00003.safetensors", rank);
}

void save_steps(const fs::path& dir, int64_t last) {
  test::on_ranks(3, [&](comm::Group world) {
    Store store(dir, {.keep = 20}, world);
    for (int64_t step = 1; step <= last; ++step)
      store.save({.step = step, .state = state_of(Layout::flat, world.rank(), 3, step)});
    store.wait();
  });
}

void put_byte(const fs::path& file, int64_t from_end) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-from_end, std::ios::end);
  const char byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(-from_end, std::ios::end);
  stream.put(byte);
}

// All ranks agree, though a broken byte is seen by one of them only.
TEST(BrokenShard, AllRanksFallBackTogether) {
  const test::TempDir dir;
  save_steps(dir.path(), 8);
  put_byte(shard_of(dir.path(), 8, 2), 3);                                  // corrupt
  put_byte(shard_of(dir.path(), 7, 1), 500);                                // in the head
  fs::remove(shard_of(dir.path(), 6, 1));                                   // missing
  fs::resize_file(shard_of(dir.path(), 5, 0), 40);                          // half-written
  fs::remove(folder(dir.path(), 4) / "manifest.json");                      // no manifest
  std::ofstream(shard_of(dir.path(), 3, 1)) << "<html>not found</html>\n";  // foreign
  std::ofstream(folder(dir.path(), 2) / "manifest.json") << "{}";           // foreign
  test::on_ranks(3, [&](comm::Group world) {
    const State want = state_of(Layout::flat, world.rank(), 3, 1), got = emptied(want);
    const auto found = Store(dir.path(), {}, world).newest([&](const Reader& r) { r.fill(got); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->snapshot.step, 1);
    expect_equal(got, want, fmt::format("rank {}", world.rank()));
    ASSERT_EQ(found->skipped.size(), 7u);
    EXPECT_TRUE(contains(found->skipped[0],
                         "step-00000008: shard-00002-of-00003.safetensors differs "
                         "from what was saved ("));
    EXPECT_TRUE(contains(found->skipped[1], "shard-00001-of-00003.safetensors differs"));
    EXPECT_TRUE(contains(found->skipped[2], "shard-00001-of-00003.safetensors is missing"));
    EXPECT_TRUE(
        contains(found->skipped[3], "shard-00000-of-00003.safetensors is truncated (40 of"));
    EXPECT_TRUE(contains(found->skipped[4], "step-00000004: it has no manifest.json"));
    EXPECT_TRUE(
        contains(found->skipped[5], "shard-00001-of-00003.safetensors is truncated (23 of"));
    EXPECT_TRUE(contains(found->skipped[6], "manifest.json is not that of a checkpoint"));
  });
}

TEST(BrokenShard, NoneLeftIsAnErrorOnAllRanks) {
  const test::TempDir dir;
  save_steps(dir.path(), 1);
  put_byte(shard_of(dir.path(), 1, 1), 3);
  test::on_ranks(3, [&](comm::Group world) {
    const State got = emptied(state_of(Layout::flat, world.rank(), 3, 1));
    const std::string text = error_of(
        [&] { Store(dir.path(), {}, world).newest([&](const Reader& r) { r.fill(got); }); });
    EXPECT_TRUE(contains(text, "none of the 1 checkpoints"));
    EXPECT_TRUE(contains(text, "shard-00001-of-00003"));
  });
  EXPECT_TRUE(contains(error_of([&] { load(folder(dir.path(), 1)); }),
                       "shard-00001-of-00003.safetensors differs"));
}

// Another error than a broken file ends the search on all ranks.
TEST(BrokenShard, AnErrorOfOneRankIsAnErrorOfAll) {
  const test::TempDir dir;
  save_steps(dir.path(), 1);
  test::on_ranks(3, [&](comm::Group world) {
    const std::string text = error_of([&] {
      Store(dir.path(), {}, world).newest([&](const Reader&) {
        if (world.rank() == 1) throw ConfigError({.what = "no room", .why = "", .fix = ""});
      });
    });
    EXPECT_TRUE(contains(text, world.rank() == 1 ? "no room" : "rank 1 could not take checkpoint"));
  });
}

}  // namespace
}  // namespace braid::checkpoint
