// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>

#include "braid/core/fs.h"
#include "braid/core/regular_file.h"

namespace braid {

struct Log::State {
  LogOptions options;
  std::FILE* file = nullptr;
  std::mutex mutex;

  ~State() {
    if (file != nullptr) std::fclose(file);
  }

  void line(std::string_view level, std::string_view text, bool to_terminal) {
    const auto now = std::chrono::system_clock::now();
    const auto millis =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() %
        1000;
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    std::tm local = {};
    localtime_r(&seconds, &local);
    const std::string line =
        fmt::format("{:%Y-%m-%d %H:%M:%S},{:03d} - root - {} - {}\n", local, millis, level, text);
    const std::lock_guard lock(mutex);
    if (to_terminal) std::fputs(line.c_str(), stderr);
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
