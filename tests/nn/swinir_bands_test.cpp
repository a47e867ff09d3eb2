// SPDX-License-Identifier: BSD-3-Clause
// SwinIR on bands of rows (the context axis) against one process, and the messages it takes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/comm/counting.h"
#include "nn/swinir_layouts.h"
#include "nn/window.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

void expect_bands(int ranks, const test::SwinWhole& whole) {
  SCOPED_TRACE(fmt::format("{} bands", ranks));
  test::on_ranks(ranks, [&](const comm::Group& world) {
    SCOPED_TRACE(fmt::format("rank {}", world.rank()));
    test::expect_like_one_process({.context = world}, whole);
  });
}

using BandCase = std::tuple<Upsampler, Residual>;

std::string text_of(const testing::TestParamInfo<BandCase>& info) {
  constexpr const char* names[] = {"pixelshuffle", "pixelshuffledirect", "nearest_conv", "none"};
  const auto [upsampler, residual] = info.param;
  return fmt::format("{}_conv{}", names[static_cast<int>(upsampler)],
                     residual == Residual::conv1 ? 1 : 3);
}

class SwinBands : public testing::TestWithParam<BandCase> {};

TEST_P(SwinBands, HaveTheLossOutputAndGradientsOfOneProcess) {
  const auto [upsampler, residual] = GetParam();
  const test::SwinWhole whole(test::swin_of(upsampler, residual));
  for (const int ranks : {2, 3, 4}) expect_bands(ranks, whole);
}

INSTANTIATE_TEST_SUITE_P(All, SwinBands,
                         testing::Combine(testing::Values(Upsampler::pixelshuffle,
                                                          Upsampler::pixelshuffledirect,
                                                          Upsampler::nearest_conv, Upsampler::none),
                                          testing::Values(Residual::conv1, Residual::conv3)),
                         text_of);

TEST(SwinirBands, EveryLossOfFieldsAndEveryScale) {
  for (const Loss kind : {Loss::l1, Loss::relative_l2})
    expect_bands(2, test::SwinWhole(test::swin_of(), kind));
  SwinirOptions options = test::swin_of();
  for (const int64_t scale : {3, 4}) {
    options.scale = scale;
    expect_bands(3, test::SwinWhole(options));
  }
}

TEST(SwinirBands, OfUnevenWindowsOfEight) {
  SwinirOptions options = test::swin_of();
  options.window = 8;
  options.image = {37, 11};  // five rows of windows
  const test::SwinWhole whole(options);
  for (const int ranks : {2, 4}) expect_bands(ranks, whole);
}

TEST(SwinirBands, TakeInputsOfOtherSizesThanTheConfig) {
  const test::SwinWhole whole(test::swin_of());
  SwinirOptions options = test::swin_of();
  options.image = {8, 8};
  test::on_ranks(2, [&](const comm::Group& world) {
    const auto model = make_swinir(options, test::swin_build({.context = world}));
    const at::Tensor output = model->forward(whole.input, test::swin_pass());
    EXPECT_EQ(output.size(2), world.rank() == 0 ? 16 : 10);
    EXPECT_LT(test::largest_difference(model->whole_output(output), whole.output), 1e-12);
  });
}

TEST(SwinirBands, OnlyTheLastBandIsMaskedBelow) {
  const at::Tensor masks = shift_masks(4);
  const at::Tensor scores = at::zeros({1, 2, 3, 1, 16, 16}, c10::kDouble);
  add_shift_masks(scores, masks, /*at_bottom=*/false);
  for (int64_t row = 0; row < 2; ++row) {
    EXPECT_TRUE(scores[0][row][0][0].equal(masks[0]));
    EXPECT_TRUE(scores[0][row][2][0].equal(masks[1]));
  }
}

// Bytes that a pass sends forward, and as many in backward.
struct SwinTraffic {
  int64_t sends = 0, bytes = 0;

  SwinTraffic(const SwinirOptions& o, int64_t batch, int64_t columns, int64_t ranks) {
    const int64_t element = 8, row = batch * columns * element;
    const auto conv = [&](int64_t channels, int64_t enlarged) {
      sends += 2 * (ranks - 1);
      bytes += 2 * (ranks - 1) * channels * enlarged * row;
    };
    for (const int64_t depth : o.depths) {
      const int64_t shifted = depth / 2, rolls = 2 * shifted;  // there and back
      sends += rolls * ranks;
      bytes += rolls * ranks * (o.window / 2) * o.width * row;
      conv(o.width, 1);
    }
    conv(o.width, 1);     // conv_after_body
    conv(o.width, 1);     // conv_before_upsample
    conv(o.features, 1);  // upsample.0, before the shuffle
    conv(o.features, 2);  // conv_last
  }
};

TEST(SwinirBands, SendTheRowsAtTheSeamsAndNothingElse) {
  constexpr int ranks = 3;
  const SwinirOptions options = test::swin_of();
  const SwinTraffic wanted(options, /*batch=*/3, /*columns=*/12, ranks);
  const at::Tensor input = test::drawn({3, 2, 13, 10}, 1, "input");
  auto traffic = std::make_shared<comm::Traffic>();
  test::on_ranks(ranks, [&](const comm::Group& world) {
    const comm::Group context(comm::counting(world.backend(), traffic));
    const auto model = make_swinir(options, test::swin_build({.context = context}));
    const auto expect = [&](int64_t passes) {
      world.barrier().wait();
      EXPECT_EQ(traffic->calls(comm::Kind::send), passes * wanted.sends);
      EXPECT_EQ(traffic->bytes(comm::Kind::send), passes * wanted.bytes);
      EXPECT_EQ(traffic->wire_bytes(), static_cast<double>(passes * wanted.bytes));
      world.barrier().wait();
    };
    const at::Tensor output = model->forward(input, test::swin_pass());
    expect(1);
    output.sum().backward();
    expect(2);
  });
}

TEST(SwinirBands, TooThinOnesAreRefused) {
  test::on_ranks(2, [&](const comm::Group& world) {
    SwinirOptions options = test::swin_of();
    options.image = {4, 16};
    EXPECT_TRUE(test::contains(
        test::error_of([&] { make_swinir(options, test::swin_build({.context = world})); }),
        "mesh.context = 2, but an image of 4 rows has 1 bands of 4 rows"));
    options.image = {8, 8};
    const auto model = make_swinir(options, test::swin_build({.context = world}));
    const std::string text =
        test::error_of([&] { model->forward(test::drawn({1, 2, 3, 9}, 1, "x"), {}); });
    EXPECT_TRUE(test::contains(text, "set mesh.context to 1 or less"));
  });
}

}  // namespace
}  // namespace braid::nn
