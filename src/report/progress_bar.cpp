// SPDX-License-Identifier: BSD-3-Clause
#include "report/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace braid::report {
namespace {

constexpr auto redraw_pause = std::chrono::milliseconds(100);

// Thick for what is done, thin for what is left; `cells` characters wide.
std::string bar_of(double share, int cells) {
  const int full = std::clamp(static_cast<int>(share * cells), 0, cells);
  std::string bar = "\x1b[36m";
  for (int i = 0; i < full; ++i) bar += "━";
  bar += "\x1b[2;37m";
  for (int i = full; i < cells; ++i) bar += "─";
  return bar + "\x1b[0m";
}

int columns_now(const Terminal& terminal) {
  winsize size{};  // asked each time: a window may be resized
  if (ioctl(terminal.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return terminal.columns;
}

}  // namespace

std::string progress_line(const Progress& progress, int columns) {
  const double share =
      progress.total > 0 ? static_cast<double>(progress.done) / static_cast<double>(progress.total)
                         : 0;
  std::string tail = progress.total > 0 ? fmt::format(" {}/{}", progress.done, progress.total)
                                        : fmt::format("step {}", progress.done);
  const int cells = progress.total > 0 ? std::clamp(columns / 5, 6, 30) : 0;
  const int head = progress.total > 0 ? cells + 5 : 0;  // "100% " and the bar
  for (const std::string& word : progress.words) {
    if (head + static_cast<int>(tail.size() + 2 + word.size()) >= columns) break;
    tail += "  " + word;
  }
  if (progress.total <= 0) return tail;
  return fmt::format("{:3.0f}% {}{}", std::min(share, 1.0) * 100, bar_of(share, cells), tail);
}

bool ProgressBar::due() const {
  return terminal_.is_tty && (!shown_ || std::chrono::steady_clock::now() - last_ >= redraw_pause);
}

void ProgressBar::draw(const Progress& progress) {
  // The cursor goes back to the first column, so that a line printed by others lands on the bar,
  // not behind it.
  put("\r\x1b[K" + progress_line(progress, columns_now(terminal_)) + "\r");
  shown_ = true;
  last_ = std::chrono::steady_clock::now();
}

void ProgressBar::clear() {
  if (!shown_) return;
  put("\r\x1b[K");
  shown_ = false;
}

void ProgressBar::put(const std::string& text) const {
  // A terminal that went away must not end a training.
  [[maybe_unused]] const ssize_t ignored = ::write(terminal_.fd, text.data(), text.size());
}

}  // namespace braid::report
