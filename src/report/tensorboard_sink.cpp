// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "braid/core/error.h"
#include "braid/report/png.h"
#include "braid/report/sink.h"
#include "report/events/events_writer.h"

namespace braid::report {
namespace {

constexpr int32_t picture_width = 1200;
constexpr int32_t picture_height = 600;

using MetricTags = std::map<std::string, std::string>;

MetricTags metric_tags(const std::vector<std::string>& given) {
  MetricTags tags;
  for (const std::string& pair : given) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size())
      throw ConfigError({.what = fmt::format("report.tags holds \"{}\"", pair),
                         .why = "an entry gives a metric another name: metric=tag",
                         .fix = "write for example report.tags: [rmse_t2m=RMSE(2 m temperature)]"});
    tags[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return tags;
}

class TensorboardSink final : public Sink {
 public:
  TensorboardSink(const std::string& dir, int64_t every, MetricTags tags)
      : dir_(std::filesystem::path(dir) / "events"),
        every_(std::max<int64_t>(every, 1)),
        tags_(std::move(tags)) {}

  void start(const RunInfo& info) override {
    events_.emplace(dir_, info.first_step);
    many_ranks_ = info.ranks > 1;
  }

  void step(const StepRecord& record) override {
    if (record.step % every_ != 0) return;
    scalar("Step/loss", record.step, record.loss);
    scalar("Step/lr", record.step, record.lr);
    scalar("Step/data_wait", record.step, record.data_wait);
    if (many_ranks_) scalar("Step/comm_wait", record.step, record.comm_wait);
    if (record.aux_loss) scalar("Step/aux_loss", record.step, *record.aux_loss);
    if (record.max_load) scalar("Step/max_load", record.step, *record.max_load);
  }

  void epoch(const EpochRecord& record) override {
    scalar("Loss/train", record.step, record.train_loss);
    scalar("Learning Rate", record.step, record.lr);
    const double rate = record.seconds > 0 ? static_cast<double>(record.steps) / record.seconds : 0;
    scalar("Avg iters per sec", record.step, rate);
    scalar("Avg samples per sec", record.step, record.samples_per_second);
  }

  void valid(const ValidRecord& record) override {
    scalar("Loss/" + record.split, record.step, record.loss);
    for (const auto& [name, value] : record.metrics) {
      const auto other = tags_.find(name);
      const std::string& tag = other == tags_.end() ? name : other->second;
      scalar(tag + "/" + record.split, record.step, value);
    }
  }

  void picture(const PictureRecord& record) override {
    writer().image(record.tag, record.step,
                   {.width = picture_width,
                    .height = picture_height,
                    .png = png_of(record, picture_width, picture_height)});
  }

 private:
  EventsWriter& writer() {
    if (!events_) events_.emplace(dir_, 0);
    return *events_;
  }
  void scalar(const std::string& tag, int64_t step, double value) {
    writer().scalar(tag, step, value);
  }

  std::filesystem::path dir_;
  int64_t every_;
  MetricTags tags_;
  bool many_ranks_ = false;
  std::optional<EventsWriter> events_;
};

}  // namespace

std::unique_ptr<Sink> tensorboard_sink(const std::string& dir, int64_t every,
                                       const std::vector<std::string>& tags) {
  return std::make_unique<TensorboardSink>(dir, every, metric_tags(tags));
}

}  // namespace braid::report
