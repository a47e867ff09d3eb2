// SPDX-License-Identifier: BSD-3-Clause
// A log that is passed, not global: lines with a time stamp to stderr and, if asked, a file. Ranks
// other than 0 are silent below `warning`.
//
//   Log log({.rank = 0, .file = "runs/demo/out.log"});
//   log.info("Starting Training Loop...");
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace braid {

struct LogOptions {
  int rank = 0;
  std::string file = {};  // beside stderr; "" for none
  bool quiet = false;     // only warnings on stderr; the file gets all
};

class Log {
 public:
  explicit Log(LogOptions options = {});
  ~Log();
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;

  void info(std::string_view text);  // "2026-11-15 05:47:01,123 - root - INFO - text"
  void warning(std::string_view text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
