// SPDX-License-Identifier: BSD-3-Clause
#include <optional>

#include "braid/core/fs.h"
#include "braid/report/sink.h"
#include "report/append_file.h"
#include "report/records.h"

namespace braid::report {
namespace {

class JsonlSink final : public Sink {
 public:
  explicit JsonlSink(const std::string& dir) : path_(std::filesystem::path(dir) / "log.jsonl") {}

  // A new run begins a new log. A resumed one goes on in the old log, from which the steps that it
  // will do again are taken out first: every step occurs once.
  void start(const RunInfo& info) override {
    make_dirs(path_.parent_path());
    const bool resumed = info.first_step > 0 && std::filesystem::exists(path_);
    write_atomic(path_, resumed ? lines_until(path_, info.first_step) : "");
    file_.emplace(path_);
    write(to_line(info));
  }

  void step(const StepRecord& record) override { write(to_line(record)); }
  void epoch(const EpochRecord& record) override { write(to_line(record)); }
  void valid(const ValidRecord& record) override { write(to_line(record)); }
  void event(const EventRecord& record) override { write(to_line(record)); }
  void end(const EndRecord& record) override { write(to_line(record)); }

 private:
  void write(std::string line) {
    if (!file_) file_.emplace(path_);
    line += '\n';
    file_->write(line);
  }

  std::filesystem::path path_;
  std::optional<AppendFile> file_;
};

}  // namespace

std::unique_ptr<Sink> jsonl_sink(const std::string& dir) {
  return std::make_unique<JsonlSink>(dir);
}

}  // namespace braid::report
