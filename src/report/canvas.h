// SPDX-License-Identifier: BSD-3-Clause
// A picture in memory, eight bits of red, green and blue, with just what png_of needs.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace braid::report {

using Colour = std::array<uint8_t, 3>;

struct Box {
  int64_t x = 0, y = 0, width = 0, height = 0;
};

class Canvas {
 public:
  Canvas(int64_t width, int64_t height, Colour background);

  int64_t width() const { return width_; }
  int64_t height() const { return height_; }
  void set(int64_t x, int64_t y, Colour colour);  // outside: nothing
  void frame(Box box, Colour colour);             // one pixel wide, around the box
  // Letters of 5 x 7 dots, each `scale` pixels; (x, y) is the top left corner. Bytes that are not
  // ASCII show as '?'.
  void text(int64_t x, int64_t y, std::string_view words, int64_t scale, Colour colour);
  std::string png() const;

 private:
  int64_t width_, height_;
  std::vector<uint8_t> pixels_;
};

int64_t text_width(std::string_view words, int64_t scale);
inline int64_t text_height(int64_t scale) { return 7 * scale; }
Colour turbo(double share);  // the turbo map: 0 dark blue, 0.5 green, 1 dark red

}  // namespace braid::report
