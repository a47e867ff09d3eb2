// SPDX-License-Identifier: BSD-3-Clause
// The checksum of TFRecord files: CRC-32C (Castagnoli), and its masked form that is stored beside
// the data.
#pragma once
#include <cstdint>
#include <string_view>

namespace braid::report {

uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace braid::report
