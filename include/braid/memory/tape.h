// SPDX-License-Identifier: BSD-3-Clause
// Results of chosen operators, kept in one pass and handed out in the next: selective recompute.
//
//   memory::Tape tape({.each = {"aten::mm", "aten::addmm"}});
//   { const memory::TapeScope on(&tape, memory::TapeMode::record); y = block(x); }
//   { const memory::TapeScope on(&tape, memory::TapeMode::replay); z = block(x); }   // no matmul
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

namespace braid::memory {

// Names of operators, e.g. aten::addmm.
struct TapeOptions {
  std::set<std::string> each = {};          // every result is kept
  std::set<std::string> every_second = {};  // of all calls of these: the first, the third, ...
  // Of these the first result is kept: the others are handed out undefined.
  std::set<std::string> first = {};
};

class Tape {
 public:
  explicit Tape(TapeOptions options);
  ~Tape();
  Tape(Tape&&) noexcept;
  Tape& operator=(Tape&&) noexcept;

  size_t size() const;        // operators kept
  size_t replayed() const;    // results handed out
  void shorten(size_t size);  // forgets what was kept after the first `size`

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

enum class TapeMode : uint8_t { record, replay };

// While it lives, chosen operators of this thread go to the tape or come from it; instruments stay
// what they are. Scopes nest, the innermost counts; null: no tape. Each replay begins with the
// first operator; a result that was handed out before, or written to since, is computed.
class TapeScope {
 public:
  TapeScope(Tape* tape, TapeMode mode);
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::memory
