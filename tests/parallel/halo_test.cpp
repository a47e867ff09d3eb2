// SPDX-License-Identifier: BSD-3-Clause
// Bands of rows against the whole image in one process: values, gradients, messages.
#include "braid/parallel/halo.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "braid/comm/counting.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::parallel {
namespace {

// Rows of each rank, as uneven as they come.
struct Heights {
  std::vector<int64_t> rows;
  int ranks() const { return static_cast<int>(rows.size()); }
  RowBands bands(int rank) const { return {rows, rank}; }
  int64_t whole() const { return bands(0).whole(); }
};

std::vector<Heights> all_heights() {
  return {{{4, 4}}, {{2, 7}}, {{5, 2, 3}}, {{2, 2, 2}}, {{3, 6, 2, 4}}, {{2, 2, 2, 2}}};
}

bool near(const at::Tensor& a, const at::Tensor& b) { return a.allclose(b, 1e-12, 1e-12); }

at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().requires_grad_(true); }

// Each rank computes its band and weighs every element of it: the gradient of the whole image comes
// together in the bands.
template <class Whole, class Band>
void expect_bands_like_the_whole(const Heights& heights, const Whole& of_whole,
                                 const Band& of_band) {
  const at::Tensor image = leaf(test::drawn({2, 3, heights.whole(), 5}, 1, "image"));
  const at::Tensor wanted = of_whole(image);
  const at::Tensor weights = test::drawn(wanted.sizes(), 1, "weights");
  wanted.mul(weights).sum().backward();
  test::on_ranks(heights.ranks(), [&](const comm::Group& group) {
    const RowBands bands = heights.bands(group.rank());
    const at::Tensor band = leaf(take_rows(image, bands, 2));
    const at::Tensor y = of_band(band, group);
    EXPECT_TRUE(near(y, take_rows(wanted, bands, 2))) << "rank " << group.rank();
    y.mul(take_rows(weights, bands, 2)).sum().backward();
    EXPECT_TRUE(near(band.grad(), take_rows(image.grad(), bands, 2))) << "rank " << group.rank();
  });
}

TEST(Halo, RollsRowsAcrossBandsBothWays) {
  for (const Heights& heights : all_heights())
    for (const int64_t shift : {-2, -1, 1, 2}) {
      const std::vector<int64_t> shifts = {shift, 3 * shift}, dims = {2, -1};
      expect_bands_like_the_whole(
          heights, [&](const at::Tensor& x) { return at::roll(x, shifts, dims); },
          [&](const at::Tensor& x, const comm::Group& group) {
            return band_roll(x, shifts, dims, group);
          });
    }
}

TEST(Halo, ConvolvesBandsAsTheWholeImage) {
  for (const Heights& heights : all_heights())
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>(3, 3), {5, 3}, {1, 1}}) {
      const at::Tensor weight = test::drawn({4, 3, rows, columns}, 2, "weight");
      const at::Tensor bias = test::drawn({4}, 2, "bias");
      expect_bands_like_the_whole(
          heights,
          [&](const at::Tensor& x) {
            return at::conv2d(x, weight, bias, 1, {rows / 2, columns / 2});
          },
          [&](const at::Tensor& x, const comm::Group& group) {
            return band_conv2d(x, weight, bias, group);
          });
    }
}

TEST(Halo, HaloRowsStandAroundTheBandAndTheirGradientsGoHome) {
  for (const Heights& heights : all_heights())
    for (const int64_t halo : {1, 2}) {
      // Each output row is a sum over its neighbourhood, weighed differently above and below.
      const auto slide = [&](const at::Tensor& padded) {
        const int64_t rows = padded.size(2) - 2 * halo;
        return padded.narrow(2, 0, rows)
            .add(padded.narrow(2, halo, rows))
            .add(padded.narrow(2, 2 * halo, rows), 3);
      };
      expect_bands_like_the_whole(
          heights,
          [&](const at::Tensor& x) { return slide(at::constant_pad_nd(x, {0, 0, halo, halo})); },
          [&](const at::Tensor& x, const comm::Group& group) {
            return slide(with_halo(x, group, halo, 2));
          });
    }
}

TEST(Halo, WeightGradientsOfAllBandsAddUp) {
  for (const int64_t groups : {1, 2}) {
    const at::Tensor image = test::drawn({2, 4, 11, 6}, 3, "image");
    const at::Tensor weights = test::drawn({2, 4, 11, 6}, 3, "weights");
    const auto make = [&] {
      return std::pair(leaf(test::drawn({4, 4 / groups, 5, 3}, 3, "weight")),
                       leaf(test::drawn({4}, 3, "bias")));
    };
    const auto [weight, bias] = make();
    at::conv2d(image, weight, bias, 1, {2, 1}, 1, groups).mul(weights).sum().backward();
    const at::Tensor wanted_weight = weight.grad(), wanted_bias = bias.grad();
    test::on_ranks(3, [&](const comm::Group& group) {
      const RowBands bands = {{3, 6, 2}, group.rank()};
      const auto [own_weight, own_bias] = make();  // the input itself needs no gradient
      band_conv2d(take_rows(image, bands, 2), own_weight, own_bias, group)
          .mul(take_rows(weights, bands, 2))
          .sum()
          .backward();
      for (const at::Tensor& grad : {own_weight.grad(), own_bias.grad()})
        group.all_reduce(grad).wait();
      EXPECT_TRUE(near(own_weight.grad(), wanted_weight));
      EXPECT_TRUE(near(own_bias.grad(), wanted_bias));
    });
  }
}

TEST(Halo, MessagesAreTheRowsAtTheSeams) {
  auto traffic = std::make_shared<comm::Traffic>();
  constexpr int64_t batch = 2, channels = 3, columns = 5, bytes = 8;
  constexpr int64_t row = batch * channels * columns * bytes;
  const at::Tensor weight = test::drawn({4, channels, 3, 3}, 2, "weight");
  test::on_ranks(3, [&](const comm::Group& world) {
    const comm::Group group(comm::counting(world.backend(), traffic));
    const at::Tensor band = leaf(test::drawn({batch, channels, 4, columns}, 1, "band"));
    const auto expect = [&](int64_t sends, int64_t sent) {
      world.barrier().wait();
      EXPECT_EQ(traffic->calls(comm::Kind::send), sends);
      EXPECT_EQ(traffic->calls(comm::Kind::recv), sends);
      EXPECT_EQ(traffic->bytes(comm::Kind::send), sent);
      world.barrier().wait();
      if (world.rank() == 0) traffic->clear();
      world.barrier().wait();
    };
    const at::Tensor y = band_conv2d(band, weight, {}, group);
    expect(2 * 2, 2 * 2 * row);  // two seams, two directions
    y.sum().backward();
    expect(2 * 2, 2 * 2 * row);
    const at::Tensor z = band_roll(band, {-3, -3}, {2, 3}, group);
    expect(3, 3 * 3 * row);  // three rows from each rank, round the ring
    z.sum().backward();
    expect(3, 3 * 3 * row);
  });
}

TEST(Halo, SharesRowsInWholeWindows) {
  test::on_ranks(3, [&](const comm::Group& group) {
    const RowBands bands = share_rows(40, group, 8);
    EXPECT_EQ(bands.rows, (std::vector<int64_t>{16, 16, 8}));
    EXPECT_EQ(bands.rank, group.rank());
    EXPECT_EQ(bands.first(), 16 * group.rank());
    EXPECT_EQ(share_rows(37, group, 8).rows, (std::vector<int64_t>{16, 16, 5}));
    EXPECT_EQ(bands.enlarged(2).cut_to(74).rows, (std::vector<int64_t>{32, 32, 10}));
    EXPECT_EQ((RowBands{{16, 16, 8}, 1}.with_halo(1)), (Range{15, 33}));
    EXPECT_EQ((RowBands{{16, 16, 8}, 2}.with_halo(3)), (Range{29, 40}));
    const at::Tensor image = test::drawn({1, 2, 40, 3}, 1, "image");
    EXPECT_TRUE(join_rows(take_rows(image, bands, 2), bands, group, 2).equal(image));
    EXPECT_TRUE(test::contains(test::error_of([&] { share_rows(16, group, 8); }),
                               "mesh.context = 3, but an image of 16 rows has 2 bands of 8 rows"));
    const std::string thin =
        test::error_of([&] { band_roll(take_rows(image, bands, 2), {-17, 0}, {2, 3}, group); });
    EXPECT_TRUE(test::contains(thin, "its neighbours want 17 of it"));
  });
}

TEST(Halo, OneRankNeedsNobody) {
  const at::Tensor image = test::drawn({1, 2, 4, 3}, 1, "image");
  const at::Tensor weight = test::drawn({2, 2, 3, 3}, 1, "weight");
  EXPECT_TRUE(band_conv2d(image, weight, {}, {}).equal(at::conv2d(image, weight, {}, 1, 1)));
  EXPECT_TRUE(band_roll(image, {1, 1}, {2, 3}, {}).equal(at::roll(image, {1, 1}, {2, 3})));
  EXPECT_TRUE(with_halo(image, {}, 1, 2).equal(at::constant_pad_nd(image, {0, 0, 1, 1})));
  EXPECT_TRUE(test::contains(
      test::error_of([&] { band_conv2d(image, test::drawn({2, 2, 2, 3}, 1, "even"), {}, {}); }),
      "band_conv2d with a weight of [2, 2, 2, 3]"));
}

}  // namespace
}  // namespace braid::parallel
