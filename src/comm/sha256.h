// SPDX-License-Identifier: BSD-3-Clause
// SHA-256 and HMAC-SHA256 (FIPS 180-4, RFC 2104): what the proof of a job's token needs. One
// primitive does not justify linking libcrypto into every program that uses braid.
//
//   const std::string mac = hmac_sha256(token, "client" + nonce);   // 32 bytes
//   if (!same_bytes(mac, theirs)) ...                               // in constant time
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace braid::comm {

std::string sha256(std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view bytes);
std::string random_bytes(size_t count);  // from the kernel's generator
std::string to_hex(std::string_view bytes);
bool same_bytes(std::string_view a, std::string_view b);

}  // namespace braid::comm
