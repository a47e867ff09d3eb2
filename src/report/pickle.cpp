// SPDX-License-Identifier: BSD-3-Clause
#include "report/pickle.h"

#include <bit>
#include <utility>

namespace braid::report {
namespace {

constexpr size_t items_a_part = 1000;  // as Python's own pickler does

// Bytes of the shortest two's complement.
int length_of(int64_t value) {
  int length = 1;
  while (length < 8 && (value >> (8 * length - 1)) != 0 && (value >> (8 * length - 1)) != -1)
    ++length;
  return length;
}

}  // namespace

Pickle::Pickle() {
  byte(0x80);  // PROTO
  byte(4);
}

void Pickle::little(uint64_t value, int count) {
  for (int i = 0; i < count; ++i) byte(static_cast<int>(value >> (8 * i) & 0xFF));
}

Pickle& Pickle::none() {
  byte('N');
  return *this;
}

Pickle& Pickle::boolean(bool value) {
  byte(value ? 0x88 : 0x89);  // NEWTRUE, NEWFALSE
  return *this;
}

Pickle& Pickle::integer(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value >= 0 && value < 256) {
    byte('K');  // BININT1
    little(bits, 1);
  } else if (value >= 0 && value < 65536) {
    byte('M');  // BININT2
    little(bits, 2);
  } else if (value == static_cast<int32_t>(value)) {
    byte('J');  // BININT
    little(bits, 4);
  } else {
    byte(0x8A);  // LONG1
    byte(length_of(value));
    little(bits, length_of(value));
  }
  return *this;
}

Pickle& Pickle::real(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  byte('G');  // BINFLOAT, the one number with its highest byte first
  for (int i = 7; i >= 0; --i) byte(static_cast<int>(bits >> (8 * i) & 0xFF));
  return *this;
}

Pickle& Pickle::text(std::string_view value) {
  const auto [found, is_new] = texts_.try_emplace(std::string(value), remembered_);
  if (!is_new) return again(found->second);
  if (value.size() < 256) {
    byte(0x8C);  // SHORT_BINUNICODE
    little(value.size(), 1);
  } else {
    byte('X');  // BINUNICODE
    little(value.size(), 4);
  }
  bytes_ += value;
  remember();
  return *this;
}

Pickle& Pickle::begin_list() {
  byte(']');
  byte('(');
  items_.push_back(0);
  return *this;
}

Pickle& Pickle::next() {
  if (++items_.back() % items_a_part != 0) return *this;
  byte('e');  // APPENDS
  byte('(');
  return *this;
}

Pickle& Pickle::end_list() {
  byte('e');
  items_.pop_back();
  return *this;
}

Pickle& Pickle::begin_dict() {
  byte('}');
  byte('(');
  return *this;
}

Pickle& Pickle::end_dict() {
  byte('u');  // SETITEMS
  return *this;
}

Pickle& Pickle::pair() {
  byte(0x86);  // TUPLE2
  return *this;
}

uint32_t Pickle::remember() {
  byte(0x94);  // MEMOIZE
  return remembered_++;
}

Pickle& Pickle::again(uint32_t remembered) {
  const bool is_short = remembered < 256;
  byte(is_short ? 'h' : 'j');  // BINGET, LONG_BINGET
  little(remembered, is_short ? 1 : 4);
  return *this;
}

std::string Pickle::finish() {
  byte('.');
  return std::exchange(bytes_, {});
}

}  // namespace braid::report
