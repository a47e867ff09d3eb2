// SPDX-License-Identifier: BSD-3-Clause
// Made-up runs for the tests of report.
#pragma once
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "braid/core/record.h"
#include "braid/report/sink.h"

namespace braid::test {

inline RunInfo sample_info(const std::string& name, const std::string& dir) {
  RunInfo info;
  info.name = name;
  info.dir = dir;
  info.model = "vit";
  info.config = "model:\n  name: vit\n";
  info.config_spec = "configs/vit.yaml:short";
  info.device = "cpu";
  info.parameters = 23832960;
  info.samples_per_epoch = 160;
  info.steps_per_epoch = 10;
  info.total_steps = 40;
  info.global_batch = 16;
  return info;
}

inline StepRecord sample_step(int64_t step) {
  StepRecord record;
  record.step = step;
  record.epoch = (step - 1) / 10;
  record.loss = 1.0 / static_cast<double>(step);
  record.lr = 5e-4;
  record.samples = 16;
  record.seconds = 0.5;
  record.data_wait = 0.05;
  record.memory = int64_t{3} << 30;
  record.tflops = 2;
  return record;
}

inline EpochRecord sample_epoch(int64_t epoch) {
  return {.epoch = epoch,
          .step = 10 * (epoch + 1),
          .steps = 10,
          .train_loss = 0.578991,
          .lr = 4.9e-4,
          .seconds = 61.23,
          .samples_per_second = 8.362};
}

inline ValidRecord sample_valid(int64_t epoch) {
  ValidRecord record;
  record.epoch = epoch;
  record.step = 10 * (epoch + 1);
  record.samples = 128;
  record.loss = 0.4 / static_cast<double>(epoch + 1);
  record.seconds = 4.94;
  record.metrics = {{"accuracy", 0.5 + 0.1 * static_cast<double>(epoch)},
                    {"rmse_u10", 0.25 / static_cast<double>(epoch + 1)}};
  return record;
}

inline PictureRecord sample_picture() {
  PictureRecord picture{
      .tag = "Visualization, t2m", .step = 10, .rows = 90, .columns = 180, .panels = {}};
  for (const float shift : {0.0F, 0.3F}) {
    std::vector<float> values;
    for (int64_t i = 0; i < picture.rows * picture.columns; ++i)
      values.push_back(std::sin(0.05F * static_cast<float>(i % 180) + shift) *
                       std::cos(0.04F * static_cast<float>(i / 180)));
    picture.panels.emplace_back(shift == 0 ? "ERA5 target" : "ViT prediction", std::move(values));
  }
  return picture;
}

// `epochs` epochs of ten steps with a validation each, then the end.
inline void play(report::Sink& sink, const RunInfo& info, int64_t epochs = 4) {
  sink.start(info);
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t i = 1; i <= 10; ++i) sink.step(sample_step(10 * epoch + i));
    sink.epoch(sample_epoch(epoch));
    sink.valid(sample_valid(epoch));
  }
  sink.event({.kind = "checkpoint", .step = 10 * epochs, .text = "saved checkpoints/40"});
  sink.end({.step = 10 * epochs,
            .seconds = 3723,
            .reason = "epochs",
            .metrics = {{"rmse_u10", 0.0625}}});
}

// One step of `count` ranks in lockstep, 0.5 s each: all work 0.3 s but `slow`, which works 0.4 s,
// and what is left is the wait for it.
inline std::vector<RankTime> sample_ranks(int64_t count, int64_t slow) {
  std::vector<RankTime> ranks(static_cast<size_t>(count), {0.5, 0.05, 0.15});
  if (slow >= 0) ranks[static_cast<size_t>(slow)].comm_wait = 0.05;
  return ranks;
}

inline RunInfo sample_info_of_ranks(const std::string& dir, int64_t count) {
  RunInfo info = sample_info("demo", dir);
  info.ranks = count;
  info.mesh = "data 2, shard " + std::to_string(count / 2);
  info.latency = 1.2e-4;
  return info;
}

inline StepRecord sample_step_of_ranks(int64_t step, std::vector<RankTime> ranks) {
  StepRecord record = sample_step(step);
  record.comm_wait = ranks.front().comm_wait;
  record.ranks = std::move(ranks);
  return record;
}

inline std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::string& file) {
  std::istringstream in(text_of(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace braid::test
