// SPDX-License-Identifier: BSD-3-Clause
#include "braid/report/png.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "braid/core/error.h"
#include "report/canvas.h"

namespace braid::report {
namespace {

constexpr Colour white = {255, 255, 255};
constexpr Colour ink = {32, 36, 44};
constexpr Colour no_value = {150, 150, 150};  // NaN and infinity
constexpr int64_t margin = 24;
constexpr int64_t titles_height = 84;  // the tag, and the titles of the panels below it
constexpr int64_t legend_height = 62;  // colour bar with numbers, and the air above it

struct Scale {
  double low = 0, high = 1;
  double share(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

Scale common_scale(const PictureRecord& picture) {
  Scale scale{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const auto& [title, values] : picture.panels)
    for (const float value : values) {
      if (!std::isfinite(value)) continue;
      scale.low = std::min<double>(scale.low, value);
      scale.high = std::max<double>(scale.high, value);
    }
  return scale.low <= scale.high ? scale : Scale{0, 0};
}

void check_picture(const PictureRecord& picture) {
  const int64_t size = picture.rows * picture.columns;
  const auto complain = [&](std::string what) {
    throw InternalError({.what = fmt::format("picture \"{}\": {}", picture.tag, what),
                         .why = "each panel holds rows x columns values, row by row",
                         .fix = "give every panel that many values"});
  };
  if (picture.panels.empty() || size <= 0)
    complain(
        fmt::format("{} panels of {} x {}", picture.panels.size(), picture.rows, picture.columns));
  for (const auto& [title, values] : picture.panels)
    if (static_cast<int64_t>(values.size()) != size)
      complain(fmt::format("panel \"{}\" has {} values, not {} x {}", title, values.size(),
                           picture.rows, picture.columns));
}

// The mean of the values under a pixel when the field is finer than the picture; else the one value
// there.
double value_under(const std::vector<float>& values, int64_t columns, Box cells) {
  double sum = 0;
  for (int64_t y = cells.y; y < cells.y + cells.height; ++y)
    for (int64_t x = cells.x; x < cells.x + cells.width; ++x)
      sum += values[static_cast<size_t>(y * columns + x)];
  return sum / static_cast<double>(cells.width * cells.height);
}

void draw_field(Canvas& canvas, Box box, const PictureRecord& picture,
                const std::vector<float>& values, Scale scale) {
  for (int64_t y = 0; y < box.height; ++y) {
    const int64_t row = y * picture.rows / box.height;
    const int64_t row_end = std::max(row + 1, (y + 1) * picture.rows / box.height);
    for (int64_t x = 0; x < box.width; ++x) {
      const int64_t column = x * picture.columns / box.width;
      const int64_t column_end = std::max(column + 1, (x + 1) * picture.columns / box.width);
      const double value =
          value_under(values, picture.columns, {column, row, column_end - column, row_end - row});
      canvas.set(box.x + x, box.y + y, std::isfinite(value) ? turbo(scale.share(value)) : no_value);
    }
  }
  canvas.frame(box, ink);
}

void draw_centred(Canvas& canvas, int64_t middle, int64_t y, const std::string& words,
                  int64_t scale) {
  canvas.text(middle - text_width(words, scale) / 2, y, words, scale, ink);
}

// The largest letters that fit.
int64_t title_scale(const std::string& title, int64_t width) {
  int64_t scale = 3;
  while (scale > 1 && text_width(title, scale) > width) --scale;
  return scale;
}

std::string tick_text(double value, double span) {
  return std::abs(value) < 1e-3 * span ? "0" : fmt::format("{:.3g}", value);
}

void draw_legend(Canvas& canvas, int64_t top, Scale scale) {
  const Box bar = {canvas.width() / 4, top, canvas.width() / 2, 16};
  for (int64_t x = 0; x < bar.width; ++x)
    for (int64_t y = 0; y < bar.height; ++y)
      canvas.set(bar.x + x, bar.y + y,
                 turbo(static_cast<double>(x) / static_cast<double>(bar.width - 1)));
  canvas.frame(bar, ink);
  const double span = scale.high - scale.low;
  for (const double share : {0.0, 0.5, 1.0})
    draw_centred(canvas, bar.x + std::llround(share * static_cast<double>(bar.width)),
                 bar.y + bar.height + 8, tick_text(scale.low + share * span, span), 2);
}

}  // namespace

std::string png_of(const PictureRecord& picture, int64_t width, int64_t height) {
  check_picture(picture);
  const Scale scale = common_scale(picture);
  Canvas canvas(width, height, white);

  const auto count = static_cast<int64_t>(picture.panels.size());
  const int64_t room = (width - margin * (count + 1)) / count;
  const int64_t room_high = height - 2 * margin - titles_height - legend_height;
  const int64_t wide =
      std::max<int64_t>(1, std::min(room, room_high * picture.columns / picture.rows));
  const int64_t high = std::max<int64_t>(1, wide * picture.rows / picture.columns);
  const int64_t top = margin + std::max<int64_t>(0, (room_high - high) / 2);

  draw_centred(canvas, width / 2, top, picture.tag, title_scale(picture.tag, width));
  for (int64_t i = 0; i < count; ++i) {
    const auto& [title, values] = picture.panels[static_cast<size_t>(i)];
    const int64_t middle = margin + room / 2 + i * (room + margin);
    const Box box = {middle - wide / 2, top + titles_height, wide, high};
    draw_field(canvas, box, picture, values, scale);
    draw_centred(canvas, middle, box.y - text_height(3) - 10, title, title_scale(title, room));
  }
  draw_legend(canvas, top + titles_height + high + margin, scale);
  return canvas.png();
}

}  // namespace braid::report
