// SPDX-License-Identifier: BSD-3-Clause
// Letters of 5 x 7 dots for titles of pictures: from ' ' to '~', five columns each, bit 0 on top.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace braid::report {

using Glyph = std::array<uint8_t, 5>;
const Glyph& glyph_of(char letter);

}  // namespace braid::report
