// SPDX-License-Identifier: BSD-3-Clause
#include "report/canvas.h"

#include <png.h>

#include <algorithm>
#include <cmath>

#include "braid/core/error.h"
#include "report/font.h"

namespace braid::report {
namespace {

constexpr int64_t glyph_columns = 5;
constexpr int64_t glyph_pitch = 6;  // a column of air between letters

}  // namespace

Canvas::Canvas(int64_t width, int64_t height, Colour background)
    : width_(width), height_(height), pixels_(static_cast<size_t>(width * height * 3)) {
  for (size_t i = 0; i < pixels_.size(); ++i) pixels_[i] = background[i % 3];
}

void Canvas::set(int64_t x, int64_t y, Colour colour) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  std::ranges::copy(colour, pixels_.begin() + (y * width_ + x) * 3);
}

void Canvas::frame(Box box, Colour colour) {
  for (int64_t x = box.x - 1; x <= box.x + box.width; ++x) {
    set(x, box.y - 1, colour);
    set(x, box.y + box.height, colour);
  }
  for (int64_t y = box.y - 1; y <= box.y + box.height; ++y) {
    set(box.x - 1, y, colour);
    set(box.x + box.width, y, colour);
  }
}

void Canvas::text(int64_t x, int64_t y, std::string_view words, int64_t scale, Colour colour) {
  for (const char letter : words) {
    const Glyph& glyph = glyph_of(letter);
    for (int64_t column = 0; column < glyph_columns * scale; ++column)
      for (int64_t row = 0; row < text_height(scale); ++row)
        if ((glyph[static_cast<size_t>(column / scale)] >> (row / scale)) & 1)
          set(x + column, y + row, colour);
    x += glyph_pitch * scale;
  }
}

std::string Canvas::png() const {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width_);
  image.height = static_cast<png_uint_32>(height_);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels_.data(), 0, nullptr) == 0)
    throw InternalError({.what = std::string("libpng cannot encode a picture: ") + image.message,
                         .why = "the size of the picture and its buffer must agree",
                         .fix = "report this with the size of the picture"});
  bytes.resize(size);
  return bytes;
}

int64_t text_width(std::string_view words, int64_t scale) {
  return words.empty() ? 0 : (static_cast<int64_t>(words.size()) * glyph_pitch - 1) * scale;
}

// Polynomials of fifth degree, within 0.5 % of the published table of the map.
Colour turbo(double share) {
  const double x = std::clamp(share, 0.0, 1.0);
  const auto channel = [x](std::array<double, 6> c) {
    const double value = c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * (c[4] + x * c[5]))));
    return static_cast<uint8_t>(std::lround(255 * std::clamp(value, 0.0, 1.0)));
  };
  return {channel({0.13572138, 4.61539260, -42.66032258, 132.13108234, -152.94239396, 59.28637943}),
          channel({0.09140261, 2.19418839, 4.84296658, -14.18503333, 4.27729857, 2.82956604}),
          channel({0.10667330, 12.64194608, -60.58204836, 110.36276771, -89.90310912, 27.34824973})};
}

}  // namespace braid::report
