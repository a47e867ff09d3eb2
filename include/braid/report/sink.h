// SPDX-License-Identifier: BSD-3-Clause
// Where records go. The trainer hands each record to every sink; a sink ignores what it has no use
// for.
//
//   report::Sinks sinks = report::open_sinks(options, "runs/demo", log, {.is_tty = true});
//   sinks.start(info);
//   sinks.step(record);
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "braid/core/log.h"
#include "braid/core/options.h"
#include "braid/core/record.h"

namespace braid::report {

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void start(const RunInfo&) {}
  virtual void step(const StepRecord&) {}
  virtual void epoch(const EpochRecord&) {}
  virtual void valid(const ValidRecord&) {}
  virtual void picture(const PictureRecord&) {}
  virtual void event(const EventRecord&) {}
  virtual void end(const EndRecord&) {}
};

struct ReportOptions {
  int64_t every = 10;  // steps between console lines when there is no terminal
  std::vector<std::string> to = {"console", "jsonl", "tensorboard", "html"};
  bool pictures = true;
};
void describe(Fields& fields, ReportOptions& options);

// All sinks of a run; each record goes to each of them in order.
class Sinks final : public Sink {
 public:
  void add(std::unique_ptr<Sink> sink);
  void start(const RunInfo& info) override;
  void step(const StepRecord& record) override;
  void epoch(const EpochRecord& record) override;
  void valid(const ValidRecord& record) override;
  void picture(const PictureRecord& record) override;
  void event(const EventRecord& record) override;
  void end(const EndRecord& record) override;

 private:
  std::vector<std::unique_ptr<Sink>> sinks_;
};

struct Terminal {
  bool is_tty = false;  // a progress bar may be drawn
  int columns = 80;     // where the terminal does not tell
  int fd = 2;           // the bar goes to stderr, as the log does
};

std::unique_ptr<Sink> console_sink(const ReportOptions& options, Log& log, Terminal terminal);
// dir/log.jsonl: begun anew by a new run, continued by a resumed one.
std::unique_ptr<Sink> jsonl_sink(const std::string& dir);
// dir/events/events.out.tfevents...; the curves Step/... have a point every `every` steps.
std::unique_ptr<Sink> tensorboard_sink(const std::string& dir, int64_t every = 10);
// dir/picture.png and dir/report.html, written after validations (not so often that it costs time)
// and at the end. It reads dir/log.jsonl, so the jsonl sink must come before it.
std::unique_ptr<Sink> html_sink(const std::string& dir);
// The sinks named in options.to. Throws ConfigError for a name that is none.
Sinks open_sinks(const ReportOptions& options, const std::string& dir, Log& log, Terminal terminal);

}  // namespace braid::report
