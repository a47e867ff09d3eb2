// SPDX-License-Identifier: BSD-3-Clause
// The header of llm.c's token files: 256 int32 words, the first three are magic, version and number
// of tokens. Internal.
#pragma once
#include <array>
#include <cstdint>

namespace braid::data {

inline constexpr int64_t token_header_words = 256, token_header_bytes = 4 * token_header_words;
inline constexpr int32_t token_magic_u16 = 20240520, token_version_u16 = 1;  // GPT-2
inline constexpr int32_t token_magic_u32 = 20240801, token_version_u32 = 7;  // Llama 3

}  // namespace braid::data
