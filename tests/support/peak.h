// SPDX-License-Identifier: BSD-3-Clause
// How far the memory of this process grows at most while something runs.
//
//   const test::PeakGrowth peak;
//   load();
//   EXPECT_LT(peak.kilobytes(), 8 << 10);
#pragma once
#include <cstdint>
#include <fstream>
#include <string>

namespace braid::test {

class PeakGrowth {
 public:
  PeakGrowth() {
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
    before_ = peak();
  }
  int64_t kilobytes() const { return peak() - before_; }

 private:
  static int64_t peak() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
    return -1;
  }
  int64_t before_ = 0;
};

}  // namespace braid::test
