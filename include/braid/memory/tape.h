// SPDX-License-Identifier: BSD-3-Clause
// Results of chosen operators, kept in one pass and handed out in the next: selective recompute.
//
//   memory::Tape tape({"aten::mm", "aten::addmm"});
//   { const memory::Instruments on({.record = &tape}); y = block(x); }
//   { const memory::Instruments on({.replay = &tape}); z = block(x); }   // no matmul runs
#pragma once
#include <cstddef>
#include <memory>
#include <set>
#include <string>

namespace braid::memory {

class Tape {
 public:
  explicit Tape(std::set<std::string> names);  // of operators, e.g. aten::addmm
  ~Tape();
  Tape(Tape&&) noexcept;
  Tape& operator=(Tape&&) noexcept;

  size_t size() const;      // operators kept
  size_t replayed() const;  // of these handed out again

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace braid::memory
