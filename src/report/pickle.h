// SPDX-License-Identifier: BSD-3-Clause
// Writes Python's pickle format, protocol 4, with no more opcodes than PyTorch's memory viewer
// knows (its own unpickler knows neither classes nor byte strings).
//
//   Pickle pickle;
//   pickle.begin_dict().text("sizes").begin_list();
//   pickle.integer(1).next().integer(2).next().end_list().end_dict();
//   std::string bytes = pickle.finish();   // {"sizes": [1, 2]}
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace braid::report {

class Pickle {
 public:
  Pickle();

  Pickle& none();
  Pickle& boolean(bool value);
  Pickle& integer(int64_t value);
  Pickle& real(double value);
  Pickle& text(std::string_view value);  // one that was written before is only named again

  Pickle& begin_list();
  Pickle& next();  // after each item: lists are written in parts, for the viewer's stack is short
  Pickle& end_list();
  Pickle& begin_dict();  // then keys and values in turn
  Pickle& end_dict();
  Pickle& pair();  // of the two values before

  uint32_t remember();  // the value just written ...
  Pickle& again(uint32_t remembered);

  std::string finish();

 private:
  void byte(int value) { bytes_ += static_cast<char>(value); }
  void little(uint64_t value, int count);

  std::string bytes_;
  std::vector<size_t> items_;  // of each open list
  std::unordered_map<std::string, uint32_t> texts_;
  uint32_t remembered_ = 0;
};

}  // namespace braid::report
