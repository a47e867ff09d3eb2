// SPDX-License-Identifier: BSD-3-Clause
#include "comm/sha256.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "braid/core/error.h"

namespace braid::comm {
namespace {

constexpr size_t sha_block = 64;
using ShaState = std::array<uint32_t, 8>;

// First 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> sha_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const uint8_t* at) {
  return static_cast<uint32_t>(at[0]) << 24 | static_cast<uint32_t>(at[1]) << 16 |
         static_cast<uint32_t>(at[2]) << 8 | at[3];
}

void add_block(ShaState& state, const uint8_t* block) {
  std::array<uint32_t, 64> w = {};
  for (size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t mixed = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t first = h + mixed + ((e & f) ^ (~e & g)) + sha_constants[i] + w[i];
    const uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const ShaState sum = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += sum[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  ShaState state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const size_t whole = bytes.size() / sha_block * sha_block, rest = bytes.size() - whole;
  for (size_t at = 0; at < whole; at += sha_block) add_block(state, data + at);
  std::array<uint8_t, 2 * sha_block> tail = {};
  if (rest > 0) std::memcpy(tail.data(), data + whole, rest);
  tail[rest] = 0x80;
  const size_t length = rest + 9 <= sha_block ? sha_block : 2 * sha_block;
  const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
  for (size_t i = 0; i < 8; ++i) tail[length - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  for (size_t at = 0; at < length; at += sha_block) add_block(state, tail.data() + at);
  std::string digest;
  for (const uint32_t word : state)
    for (const int shift : {24, 16, 8, 0}) digest += static_cast<char>(word >> shift & 0xff);
  return digest;
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string inner = key.size() > sha_block ? sha256(key) : std::string(key);
  inner.resize(sha_block, '\0');
  std::string outer = inner;
  for (char& letter : inner) letter = static_cast<char>(letter ^ 0x36);
  for (char& letter : outer) letter = static_cast<char>(letter ^ 0x5c);
  inner += bytes;
  return sha256(outer += sha256(inner));
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = ::getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno != EINTR)
      throw InternalError({.what = "the kernel gives no random numbers",
                           .why = "tokens and nonces of a job must not be guessable",
                           .fix = "allow the system call getrandom in the container"});
    if (got > 0) done += static_cast<size_t>(got);
  }
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

bool same_bytes(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned differing = 0;
  for (size_t i = 0; i < a.size(); ++i) differing |= static_cast<uint8_t>(a[i] ^ b[i]);
  return differing == 0;
}

}  // namespace braid::comm
