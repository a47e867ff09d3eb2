// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>

#include "braid/core/fs.h"
#include "braid/report/html.h"
#include "braid/report/png.h"
#include "braid/report/sink.h"

namespace braid::report {
namespace {

using HtmlClock = std::chrono::steady_clock;

class HtmlSink final : public Sink {
 public:
  explicit HtmlSink(const std::string& dir) : dir_(dir) {}

  void start(const RunInfo&) override { make_dirs(dir_); }
  void picture(const PictureRecord& record) override {
    write_atomic(dir_ / "picture.png", png_of(record));
  }
  // The page is drawn from the whole log, which takes longer as the run goes on: it may cost a
  // hundredth of the time.
  void valid(const ValidRecord&) override {
    if (HtmlClock::now() - written_ >= 100 * cost_) write();
  }
  void end(const EndRecord&) override { write(); }

 private:
  void write() {
    const auto start = HtmlClock::now();
    write_atomic(dir_ / "report.html", html_report({dir_}));
    written_ = HtmlClock::now();
    cost_ = written_ - start;
  }

  std::filesystem::path dir_;
  HtmlClock::time_point written_{};
  HtmlClock::duration cost_{};
};

}  // namespace

std::unique_ptr<Sink> html_sink(const std::string& dir) { return std::make_unique<HtmlSink>(dir); }

}  // namespace braid::report
