// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "braid/core/error.h"
#include "braid/report/sink.h"

namespace braid::report {
namespace {

const std::vector<std::string>& sink_names() {
  static const std::vector<std::string> names = {"console", "jsonl", "tensorboard", "html"};
  return names;
}

void check_sinks(const std::vector<std::string>& to) {
  for (const std::string& name : to) {
    if (std::ranges::count(sink_names(), name) > 0) continue;
    const std::string guess = nearest(name, sink_names());
    throw ConfigError({.what = fmt::format("report.to holds \"{}\"", name),
                       .why = fmt::format("records go to {}", fmt::join(sink_names(), ", ")),
                       .fix = guess.empty() ? "take it out of report.to"
                                            : fmt::format("write {} in place of {}", guess, name)});
  }
  const auto has = [&](const char* name) { return std::ranges::count(to, name) > 0; };
  if (has("html") && !has("jsonl"))
    throw ConfigError({.what = "report.to holds html but not jsonl",
                       .why = "report.html is drawn from log.jsonl",
                       .fix = "add jsonl to report.to, or take html out"});
}

}  // namespace

void describe(Fields& fields, ReportOptions& options) {
  fields.field("every", options.every,
               "steps between lines of a console that is no terminal, and between the points of "
               "TensorBoard's Step/ curves",
               {.at_least = 1});
  fields.field("to", options.to, "where records go: console, jsonl, tensorboard, html");
  fields.field("pictures", options.pictures,
               "draw target and prediction after each validation of a forecast");
  fields.field("channel", options.channel,
               "channel that pictures show, by its name or number; empty: the first");
  fields.field("tags", options.tags,
               "other names of metrics in TensorBoard, e.g. [rmse_t2m=RMSE(2 m temperature)]");
}

void Sinks::add(std::unique_ptr<Sink> sink) { sinks_.push_back(std::move(sink)); }

void Sinks::start(const RunInfo& info) {
  for (const auto& sink : sinks_) sink->start(info);
}
void Sinks::step(const StepRecord& record) {
  for (const auto& sink : sinks_) sink->step(record);
}
void Sinks::epoch(const EpochRecord& record) {
  for (const auto& sink : sinks_) sink->epoch(record);
}
void Sinks::valid(const ValidRecord& record) {
  for (const auto& sink : sinks_) sink->valid(record);
}
void Sinks::picture(const PictureRecord& record) {
  for (const auto& sink : sinks_) sink->picture(record);
}
void Sinks::event(const EventRecord& record) {
  for (const auto& sink : sinks_) sink->event(record);
}
void Sinks::end(const EndRecord& record) {
  for (const auto& sink : sinks_) sink->end(record);
}

Sinks open_sinks(const ReportOptions& options, const std::string& dir, Log& log,
                 Terminal terminal) {
  check_sinks(options.to);
  const auto wanted = [&](const char* name) { return std::ranges::count(options.to, name) > 0; };
  Sinks sinks;
  // In this order, whatever the order of the list: the page is drawn from the lines of jsonl, and
  // the console comes last, so that what it says is kept already.
  if (wanted("jsonl")) sinks.add(jsonl_sink(dir));
  if (wanted("tensorboard")) sinks.add(tensorboard_sink(dir, options.every, options.tags));
  if (wanted("html")) sinks.add(html_sink(dir));
  if (wanted("console")) sinks.add(console_sink(options, log, terminal));
  return sinks;
}

}  // namespace braid::report
