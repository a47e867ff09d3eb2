// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <limits>

#include "braid/report/png.h"
#include "report/canvas.h"
#include "report/samples.h"
#include "support/expect.h"

namespace braid::test {
namespace {

struct Decoded {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;
  report::Colour at(int64_t x, int64_t y) const {
    const auto i = static_cast<size_t>((y * width + x) * 3);
    return {rgb[i], rgb[i + 1], rgb[i + 2]};
  }
};

Decoded decode(const std::string& bytes) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()), 0)
      << image.message;
  image.format = PNG_FORMAT_RGB;
  Decoded decoded{image.width, image.height, std::vector<uint8_t>(PNG_IMAGE_SIZE(image))};
  EXPECT_NE(png_image_finish_read(&image, nullptr, decoded.rgb.data(), 0, nullptr), 0)
      << image.message;
  return decoded;
}

TEST(Picture, DecodesWithTheSizeAskedFor) {
  const Decoded picture = decode(report::png_of(sample_picture()));
  EXPECT_EQ(picture.width, 1200);
  EXPECT_EQ(picture.height, 600);
  EXPECT_EQ(decode(report::png_of(sample_picture(), 300, 200)).width, 300);
}

TEST(Picture, PanelsShareOneScaleOfTurbo) {
  PictureRecord record{.tag = "t", .step = 1, .rows = 1, .columns = 2, .panels = {}};
  record.panels = {{"low", {0, 0}}, {"high", {1, 1}}};
  const Decoded picture = decode(report::png_of(record));
  EXPECT_EQ(picture.at(300, 300), report::turbo(0));
  EXPECT_EQ(picture.at(900, 300), report::turbo(1));
}

TEST(Picture, RowZeroIsOnTopAndANumberThatIsNoneIsGrey) {
  PictureRecord record{.tag = "t", .step = 1, .rows = 2, .columns = 2, .panels = {}};
  record.panels = {{"", {0, 1, std::numeric_limits<float>::quiet_NaN(), 1}}};
  const Decoded picture = decode(report::png_of(record));
  const int64_t left = 560, right = 640, top = 200, bottom = 420;
  EXPECT_EQ(picture.at(left, top), report::turbo(0));
  EXPECT_EQ(picture.at(right, top), report::turbo(1));
  EXPECT_EQ(picture.at(left, bottom), (report::Colour{150, 150, 150}));
}

TEST(Picture, TitlesAreDrawn) {
  const auto ink_of = [](const std::string& title) {
    PictureRecord record{
        .tag = "", .step = 1, .rows = 1, .columns = 2, .panels = {{title, {0, 1}}}};
    const Decoded picture = decode(report::png_of(record));
    int64_t count = 0;
    for (int64_t y = 0; y < picture.height; ++y)
      for (int64_t x = 0; x < picture.width; ++x)
        count += picture.at(x, y) == report::Colour{32, 36, 44};
    return count;
  };
  EXPECT_EQ(ink_of("I") - ink_of(""), 9 * (2 + 7 + 2)) << "the dots of I, nine pixels each";
}

TEST(Picture, TurboPassesThroughItsPublishedColours) {
  const auto near = [](report::Colour colour, report::Colour wanted) {
    for (size_t i = 0; i < 3; ++i)
      if (std::abs(colour[i] - wanted[i]) > 2) return false;
    return true;
  };
  EXPECT_TRUE(near(report::turbo(0), {48, 18, 59}));
  EXPECT_TRUE(near(report::turbo(0.5), {164, 252, 60}));
  EXPECT_TRUE(near(report::turbo(1), {122, 4, 3}));
}

TEST(Picture, APanelOfTheWrongSizeIsRefused) {
  auto record = sample_picture();
  record.panels[1].second.pop_back();
  EXPECT_TRUE(contains(error_of([&] { report::png_of(record); }),
                       "panel \"ViT prediction\" has 16199 values, not 90 x 180"));
}

}  // namespace
}  // namespace braid::test
