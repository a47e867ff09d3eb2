// SPDX-License-Identifier: BSD-3-Clause
#include "braid/checkpoint/reader.h"

#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>

#include <fstream>

#include "checkpoint/layouts.h"
#include "support/expect.h"
#include "support/files.h"
#include "support/peak.h"
#include "support/ranks.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

at::Tensor thirds(c10::ScalarType dtype, int64_t count = 9) {
  return at::arange(count, at::TensorOptions(c10::kDouble)).div(3).to(dtype);
}

fs::path saved(const test::TempDir& dir, const State& state) {
  return Store(dir / "ck").save({.step = 1, .state = state});
}

TEST(Reader, ConvertsToTheDtypeThatIsWanted) {
  const test::TempDir dir;
  State state;
  state.tensors["model/w"] = thirds(c10::kDouble);
  const fs::path made = saved(dir, state);
  for (const auto dtype : {c10::kFloat, c10::kBFloat16, c10::kHalf, c10::kDouble}) {
    State wanted;
    wanted.tensors["model/w"] = at::full({9}, -1.0, at::TensorOptions(dtype));
    Reader(made).fill(wanted);
    EXPECT_TRUE(wanted.tensors["model/w"].equal(thirds(c10::kDouble).to(dtype)));
  }
}

// fp32 run, resumed with bf16 weights and fp32 masters: the masters are the old weights.
TEST(Reader, MastersComeFromTheWeights) {
  const test::TempDir dir;
  State state;
  state.tensors["model/w"] = thirds(c10::kFloat);
  const fs::path made = saved(dir, state);
  State wanted;
  wanted.tensors["model/w"] = at::full({9}, -1.0, at::TensorOptions(c10::kBFloat16));
  wanted.tensors["optimizer/w/master"] = at::full({9}, -1.0, at::TensorOptions(c10::kFloat));
  Reader(made).fill(wanted);
  EXPECT_TRUE(wanted.tensors["model/w"].equal(thirds(c10::kFloat).to(c10::kBFloat16)));
  EXPECT_TRUE(wanted.tensors["optimizer/w/master"].equal(thirds(c10::kFloat)));
}

// And back: bf16 weights with fp32 masters, resumed in fp32, as a piece: no bits are lost.
TEST(Reader, WiderWeightsComeFromTheMasters) {
  const test::TempDir dir;
  State state;
  state.tensors["model/w"] = thirds(c10::kBFloat16);
  state.tensors["optimizer/w/master"] = thirds(c10::kFloat);
  const fs::path made = saved(dir, state);
  State wanted;
  wanted.set("model/w", at::full({4}, -1.0, at::TensorOptions(c10::kFloat)),
             {.whole = {9}, .first = 3});
  Reader(made).fill(wanted);
  EXPECT_TRUE(wanted.tensors["model/w"].equal(thirds(c10::kFloat).narrow(0, 3, 4)));
  wanted.tensors["model/w"] = at::full({4}, -1.0, at::TensorOptions(c10::kBFloat16));
  Reader(made).fill(wanted);
  EXPECT_TRUE(wanted.tensors["model/w"].equal(thirds(c10::kBFloat16).narrow(0, 3, 4)));
}

// The count of steps is a scalar of a whole parameter, and one element beside a piece.
TEST(Reader, OneNumberIsOneNumberInAnyShape) {
  const test::TempDir dir;
  State state, wanted;
  state.tensors["optimizer/a/step"] = at::full({}, 17.0);
  state.set("optimizer/b/step", at::full({1}, 18.0), {.whole = {1}});
  wanted.set("optimizer/a/step", at::full({1}, -1.0), {.whole = {1}});
  wanted.tensors["optimizer/b/step"] = at::full({}, -1.0);
  Reader(saved(dir, state)).fill(wanted);
  EXPECT_TRUE(wanted.tensors["optimizer/a/step"].equal(at::full({1}, 17.0)));
  EXPECT_TRUE(wanted.tensors["optimizer/b/step"].equal(at::full({}, 18.0)));
}

TEST(Reader, FillsTensorsThatAreNotContiguous) {
  const test::TempDir dir;
  State state, wanted;
  state.tensors["model/w"] = thirds(c10::kFloat, 12).view({3, 4});
  wanted.tensors["model/w"] = at::full({4, 3}, -1.0).t();
  Reader(saved(dir, state)).fill(wanted);
  EXPECT_TRUE(wanted.tensors["model/w"].equal(state.tensors["model/w"]));
}

TEST(Reader, SaysWhatDoesNotFit) {
  const test::TempDir dir;
  State state, wanted;
  state.tensors["model/layer.weight"] = thirds(c10::kFloat);
  const fs::path made = saved(dir, state);
  wanted.tensors["model/layer.weigth"] = thirds(c10::kFloat);
  std::string text = error_of([&] { Reader(made).fill(wanted); });
  EXPECT_TRUE(contains(text, "has no tensor model/layer.weigth"));
  EXPECT_TRUE(contains(text, "the nearest name is model/layer.weight"));
  wanted = {};
  wanted.tensors["model/layer.weight"] = thirds(c10::kFloat).view({3, 3});
  text = error_of([&] { Reader(made).fill(wanted); });
  EXPECT_TRUE(contains(text, "has the shape [9], [3, 3] is wanted"));
  wanted.tensors["model/layer.weight"] = thirds(c10::kFloat, 4);
  wanted.pieces["model/layer.weight"] = {.whole = {9}, .first = 7};
  EXPECT_TRUE(contains(error_of([&] { Reader(made).fill(wanted); }),
                       "no file has the elements 9 to 10 of model/layer.weight"));
  EXPECT_TRUE(contains(error_of([&] { Reader(dir.path() / "none"); }), "it has no manifest.json"));
}

// A quarter of a tensor of 128 MiB, in another dtype: the host never holds more than the quarter.
TEST(Reader, ReadsWithoutRoomForTheWhole) {
  const test::TempDir dir;
  constexpr int64_t count = int64_t{32} << 20, quarter = count / 4;
  {
    State state;
    state.tensors["model/w"] = at::arange(count, at::TensorOptions(c10::kFloat));
    Store(dir / "ck", {.background = false}).save({.step = 1, .state = state});
  }
  State wanted;
  wanted.set("model/w", at::full({quarter}, -1.0, at::TensorOptions(c10::kBFloat16)),
             {.whole = {count}, .first = quarter});
  const test::PeakGrowth peak;
  Reader(dir / "ck/step-00000001").fill(wanted);
  const int64_t grown = peak.kilobytes();
  EXPECT_LT(grown, 8 << 10) << "kB";
  RecordProperty("peak_growth_kB", std::to_string(grown));
  EXPECT_TRUE(wanted.tensors["model/w"].equal(
      at::arange(quarter, 2 * quarter, at::TensorOptions(c10::kFloat)).to(c10::kBFloat16)));
}

// Only what overlaps is read and checked: a part far away may be broken.
TEST(Reader, ReadsOnlyWhatOverlaps) {
  const test::TempDir dir;
  constexpr int64_t count = int64_t{12} << 20;  // 48 MiB: three hashed runs
  State state, wanted;
  state.tensors["model/w"] = at::arange(count, at::TensorOptions(c10::kFloat));
  const fs::path made = saved(dir, state);
  const auto size = static_cast<int64_t>(fs::file_size(made / "model.safetensors"));
  std::fstream(made / "model.safetensors", std::ios::in | std::ios::out).seekp(size - 5).put('x');
  wanted.set("model/w", at::full({1000}, -1.0), {.whole = {count}, .first = 4'000'000});
  Reader(made).fill(wanted);
  EXPECT_TRUE(wanted.tensors["model/w"].equal(
      at::arange(4'000'000, 4'001'000, at::TensorOptions(c10::kFloat))));
  wanted.pieces["model/w"].first = count - 1000;
  EXPECT_TRUE(contains(error_of([&] { Reader(made).fill(wanted); }),
                       "model.safetensors differs from what was saved (model/w: hash"));
}

}  // namespace
}  // namespace braid::checkpoint
