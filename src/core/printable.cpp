// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/printable.h"

#include <fmt/format.h>

namespace braid {
namespace {

unsigned byte_at(std::string_view text, size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

bool is_control(unsigned byte) { return (byte < 0x20 && byte != '\n') || byte == 0x7f; }

// U+0080 to U+009F, which are two bytes in UTF-8: some terminals take U+009B for ESC [.
bool is_wide_control(std::string_view text, size_t i) {
  const unsigned second = byte_at(text, i + 1);
  return byte_at(text, i) == 0xc2 && second >= 0x80 && second <= 0x9f;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned byte = byte_at(text, i);
    if (byte == '\t') {
      safe += "\\t";
    } else if (byte == '\r') {
      safe += "\\r";
    } else if (is_control(byte)) {
      safe += fmt::format("\\x{:02x}", byte);
    } else if (is_wide_control(text, i)) {
      safe += fmt::format("\\u{:04x}", byte_at(text, ++i));
    } else {
      safe += text[i];
    }
  }
  return safe;
}

}  // namespace braid
