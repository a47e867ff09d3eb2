// SPDX-License-Identifier: BSD-3-Clause
// Tensors that ranks hold as boxes: saved without gathering, each element once, read by ranks that
// hold other boxes.
#include "checkpoint/boxes.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>

#include "braid/checkpoint/convert.h"
#include "braid/checkpoint/safetensors.h"
#include "braid/core/fs.h"
#include "checkpoint/manifest.h"
#include "checkpoint/runs.h"
#include "checkpoint/split.h"
#include "support/expect.h"
#include "support/files.h"
#include "support/ranks.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

fs::path save_boxes(const BoxLayout& layout, const fs::path& dir) {
  test::on_ranks(layout.ranks, [&](comm::Group world) {
    Store store(dir, {}, world);
    store.save({.step = 1, .state = boxes_on(layout, world.rank()), .config = "seed: 1\n"});
    store.wait();
  });
  return dir / "step-00000001";
}

const BoxLayout& layout_called(const std::string& name) {
  for (const BoxLayout& layout : box_layouts())
    if (layout.name == name) return layout;
  throw std::out_of_range(name);
}

int64_t elements_in_files(const fs::path& folder) {
  int64_t elements = 0;
  for (const auto& item : fs::directory_iterator(folder))
    if (item.path().extension() == ".safetensors")
      for (const auto& [name, tensor] : read_safetensors(item.path()).tensors)
        elements += tensor.numel();
  return elements;
}

TEST(Boxes, AnyLayoutReadsWhatAnyWrote) {
  const test::TempDir dir;
  std::vector<fs::path> made;
  for (size_t i = 0; i < box_layouts().size(); ++i)
    made.push_back(save_boxes(box_layouts()[i], dir / std::to_string(i)));
  for (const BoxLayout& reading : box_layouts())
    test::on_ranks(reading.ranks, [&](comm::Group world) {
      for (size_t i = 0; i < made.size(); ++i) {
        const State want = boxes_on(reading, world.rank()), got = emptied(want);
        Reader(made[i]).fill(got);
        expect_equal(
            got, want,
            fmt::format("{} -> {} on rank {}", box_layouts()[i].name, reading.name, world.rank()));
      }
    });
}

TEST(Boxes, EachElementIsStoredOnce) {
  int64_t wanted = 0;
  for (const Shape& shape : box_shapes()) wanted += 2 * count_of(shape.sizes) + 1;
  for (const BoxLayout& layout : box_layouts()) {
    const test::TempDir dir;
    const fs::path made = save_boxes(layout, dir.path());
    EXPECT_EQ(elements_in_files(made), wanted) << layout.name;
    const bool cut = layout.name != "alone" && layout.name != "pipeline 2";
    EXPECT_EQ(read_manifest(made).version, cut ? 3 : 2) << layout.name;
  }
}

// The parts of a rank that others do not have may stand apart in its tensor.
TEST(Boxes, PartlySharedOnesAreWrittenInSeveralRuns) {
  const test::TempDir dir;
  const at::Tensor whole = numbers("model/w", {8, 3}, 1);
  const std::vector<std::vector<Cut>> boxes = {{{0, {{0, 2}, {4, 6}}}},
                                               {{0, {{2, 4}, {4, 5}, {6, 8}}}}};
  test::on_ranks(2, [&](comm::Group world) {
    State state;
    const std::vector<Cut>& cuts = boxes[static_cast<size_t>(world.rank())];
    state.set("model/w", cut_out(whole, cuts), {{8, 3}, cuts, 0});
    Store store(dir.path(), {}, world);
    store.save({.step = 1, .state = state});
    store.wait();
  });
  EXPECT_EQ(elements_in_files(dir / "step-00000001"), 24);
  EXPECT_TRUE(load(dir / "step-00000001").state.tensor("model/w").equal(whole));
}

// Shared by columns they would be hundreds of runs: written whole by both.
TEST(Boxes, ManySmallOverlapsAreStoredTwice) {
  const test::TempDir dir;
  const at::Tensor whole = numbers("model/w", {40, 6}, 1);
  test::on_ranks(2, [&](comm::Group world) {
    const std::vector<Cut> cuts = {{1, {{world.rank() * 2, world.rank() * 2 + 4}}}};
    State state;
    state.set("model/w", cut_out(whole, cuts), {{40, 6}, cuts, 0});
    Store store(dir.path(), {}, world);
    store.save({.step = 1, .state = state});
    store.wait();
  });
  EXPECT_EQ(elements_in_files(dir / "step-00000001"), 320);
  EXPECT_TRUE(load(dir / "step-00000001").state.tensor("model/w").equal(whole));
}

TEST(Boxes, AnotherDtypeAndATensorWithGaps) {
  const test::TempDir dir;
  const Reader reader(save_boxes(layout_called("columns 3"), dir.path()));
  const at::Tensor whole = numbers("model/experts.up", {4, 6, 8}, 1);
  const std::vector<Cut> cuts = {{2, {{1, 4}, {5, 8}}}};
  for (const auto dtype : {c10::kBFloat16, c10::kDouble}) {
    State wanted;
    wanted.set("model/experts.up", at::full({4, 6, 6}, -1.0, at::TensorOptions(dtype)),
               {{4, 6, 8}, cuts, 0});
    reader.fill(wanted);
    EXPECT_TRUE(wanted.tensor("model/experts.up").equal(cut_out(whole, cuts).to(dtype)));
  }
  State wanted;
  const at::Tensor turned = at::full({8, 6, 4}, -1.0).transpose(0, 2);
  wanted.tensors["model/experts.up"] = turned;
  reader.fill(wanted);
  EXPECT_TRUE(turned.equal(whole));
}

TEST(Boxes, BecomeFilesForOthers) {
  const test::TempDir dir;
  const Reader from(save_boxes(layout_called("qkv 4, kv shared"), dir / "a"));
  convert(from, dir / "w.safetensors", {.format = Format::safetensors});
  convert(from, dir / "hf", {.format = Format::hugging_face, .max_shard = Bytes{600}});
  convert(from, dir / "three", {.ranks = 3});
  const Tensors weights = read_safetensors(dir / "w.safetensors").tensors;
  EXPECT_EQ(weights.size(), box_shapes().size());
  const Reader index = Reader::open(dir / "hf"), three(dir / "three");
  for (const Shape& shape : box_shapes()) {
    const std::string name = std::string("model/") + shape.name;
    const at::Tensor wanted = numbers(name, shape.sizes, 1);
    EXPECT_TRUE(weights.at(shape.name).equal(wanted)) << name;
    EXPECT_TRUE(index.whole(name).equal(wanted)) << name;
    EXPECT_TRUE(three.whole(name).equal(wanted)) << name;
  }
}

TEST(Boxes, WhatNobodyHoldsIsNamed) {
  const auto held = [](std::vector<Cut> cuts, int64_t first, int64_t count) {
    return std::vector<Holding>{{"w", c10::kFloat, {6, 4}, first, count, std::move(cuts)}};
  };
  EXPECT_TRUE(contains(
      error_of([&] { runs_of({held({{0, {{0, 2}}}}, 0, 8), held({{0, {{3, 6}}}}, 0, 12)}, 0); }),
      "no rank holds the elements 8 to 11 of w"));
  EXPECT_TRUE(contains(error_of([&] { runs_of({held({{1, {{0, 3}}}}, 0, 18)}, 0); }),
                       "no rank holds the elements 3 to 3 of w"));
  EXPECT_TRUE(contains(
      error_of([&] { runs_of({held({{1, {{0, 2}}}}, 0, 12), held({{1, {{2, 4}}}}, 2, 10)}, 0); }),
      "no rank holds the elements 2 to 3 of w"));
}

TEST(Boxes, BrokenFilesAreNamed) {
  const test::TempDir dir;
  const BoxLayout& layout = layout_called("zero 2 x tensor 2");
  const fs::path made = save_boxes(layout, dir.path());
  const State wanted = boxes_on(layout_called("alone"), 0);
  const fs::path shard = made / "shard-00002-of-00004.safetensors";
  const auto bytes = fs::file_size(shard);
  fs::resize_file(shard, bytes - 4);
  EXPECT_TRUE(contains(error_of([&] { Reader(made).fill(wanted); }),
                       fmt::format("shard-00002-of-00004.safetensors is truncated ({} of {} bytes)",
                                   bytes - 4, bytes)));
  fs::remove(shard);
  EXPECT_TRUE(contains(error_of([&] { Reader(made).fill(wanted); }),
                       "shard-00002-of-00004.safetensors is missing"));
  const State first = boxes_on(layout, 0);  // what no other rank holds lies in its own file
  State own;
  own.set("model/qkv", first.tensor("model/qkv"), first.pieces.at("model/qkv"));
  const State got = emptied(own);
  Reader(made).fill(got);
  expect_equal(got, own, "");
}

// A matrix of 4096 x 14336 from eight boxes of columns to three: a matter of milliseconds.
TEST(Boxes, PlanningIsCheap) {
  const Shape shape = {"w", {4096, 14336}};
  const auto start = std::chrono::steady_clock::now();
  size_t parts = 0;
  for (int reader = 0; reader < 3; ++reader) {
    const int64_t wanted_count = 4096 * even_cut(shape, 1, reader, 3).ranges[0].size();
    std::vector<braid::Run> missing =
        ascending_runs({shape.sizes, columns_of(shape, reader, 3), 0}, wanted_count);
    for (int rank = 0; rank < 8; ++rank)
      parts += take_common(missing, ascending_runs({shape.sizes, columns_of(shape, rank, 8), 0},
                                                   4096 * 1792))
                   .size();
    EXPECT_TRUE(missing.empty());
  }
  std::vector<std::vector<Holding>> ranks;
  for (int rank = 0; rank < 8; ++rank)
    ranks.push_back({{"w", c10::kFloat, shape.sizes, 0, 4096 * 1792, columns_of(shape, rank, 8)}});
  EXPECT_EQ(runs_of(ranks, 3), (std::vector<WrittenRun>{{"w", 0, 4096 * 1792}}));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(parts, 4096u * 10);  // eight boxes, and two of them go to two readers
  EXPECT_LT(took.count(), 0.5);
  RecordProperty("seconds", std::to_string(took.count()));
}

}  // namespace
}  // namespace braid::checkpoint
