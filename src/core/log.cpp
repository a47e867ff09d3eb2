// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <utility>

#include "braid/core/fs.h"
#include "braid/core/printable.h"
#include "braid/core/regular_file.h"

namespace braid {

struct Log::State {
  LogOptions options;
  std::FILE* file = nullptr;
  std::mutex mutex;
  bool heard = true;  // somebody still reads the console

  ~State() {
    if (file != nullptr) std::fclose(file);
  }

  void line(std::string_view level, std::string_view text, bool to_terminal) {
    const std::string line = dated(level, printable(text));
    const std::lock_guard lock(mutex);
    if (to_terminal && heard) heard = to_console(line);
    to_file(line);
    if (to_terminal && !heard && !std::exchange(told, true))
      to_file(dated("WARNING",
                    "no program reads the console any more (its pipe or terminal is "
                    "closed): the run goes on and writes to this file alone"));
  }

 private:
  bool told = false;  // that the console is gone

  static std::string dated(std::string_view level, std::string_view text) {
    const auto now = std::chrono::system_clock::now();
    const auto millis =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() %
        1000;
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    std::tm local = {};
    localtime_r(&seconds, &local);
    return fmt::format("{:%Y-%m-%d %H:%M:%S},{:03d} - root - {} - {}\n", local, millis, level,
                       text);
  }

  // False once nobody can read it. A full disk behind stderr may have room again later.
  static bool to_console(const std::string& line) {
    errno = 0;
    const bool failed = std::fputs(line.c_str(), stderr) < 0 || std::fflush(stderr) != 0;
    return !failed || (errno != EPIPE && errno != EIO);
  }

  void to_file(const std::string& line) const {
    if (file == nullptr) return;
    if (std::fputs(line.c_str(), file) < 0 || std::fflush(file) != 0)
      throw_storage("write", options.file, errno);
  }
};

Log::Log(LogOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  if (state_->options.file.empty() || state_->options.rank != 0) return;
  refuse_irregular(state_->options.file);  // a pipe that nobody reads would block forever
  state_->file = std::fopen(state_->options.file.c_str(), "a");
  if (state_->file == nullptr) throw_storage("open", state_->options.file, errno);
}

Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::info(std::string_view text) {
  if (state_->options.rank == 0) state_->line("INFO", text, !state_->options.quiet);
}

void Log::warning(std::string_view text) { state_->line("WARNING", text, true); }

}  // namespace braid
