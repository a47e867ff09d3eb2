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

// Every eighth colour of the turbo map; straight lines between them stay within 2 of 255.
// clang-format off
constexpr std::array<Colour, 33> turbo_stops = {{
    {48, 18, 59}, {57, 42, 115}, {64, 64, 161}, {68, 86, 199}, {70, 107, 227}, {70, 127, 246},
    {66, 147, 255}, {55, 167, 250}, {41, 187, 236}, {29, 205, 216}, {24, 220, 195}, {30, 232, 176},
    {49, 242, 153}, {76, 249, 126}, {107, 253, 100}, {138, 255, 77}, {163, 253, 60}, {184, 247, 53},
    {204, 237, 52}, {222, 224, 55}, {237, 208, 58}, {248, 192, 58}, {253, 174, 53}, {254, 152, 44},
    {251, 128, 34}, {245, 104, 23}, {236, 82, 15}, {224, 64, 9}, {210, 49, 5}, {192, 35, 2},
    {172, 23, 1}, {149, 13, 1}, {122, 4, 3}}};
// clang-format on

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

Colour turbo(double share) {
  const double at = std::clamp(share, 0.0, 1.0) * static_cast<double>(turbo_stops.size() - 1);
  const size_t below = std::min(static_cast<size_t>(at), turbo_stops.size() - 2);
  const double part = at - static_cast<double>(below);
  Colour colour{};
  for (size_t i = 0; i < 3; ++i)
    colour[i] = static_cast<uint8_t>(
        std::lround((1 - part) * turbo_stops[below][i] + part * turbo_stops[below + 1][i]));
  return colour;
}

}  // namespace braid::report
