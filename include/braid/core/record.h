// SPDX-License-Identifier: BSD-3-Clause
// What a run says of itself, as plain structs: the trainer fills them, the sinks of `report` show
// and keep them. Names here are the names in log.jsonl; tests/golden/log_fields.txt freezes them.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace braid {

struct RunInfo {
  std::string name;
  std::string dir;          // runs/<name>
  std::string model;        // vit, swinir, ...
  std::string config;       // the resolved config as YAML
  std::string config_spec;  // configs/vit.yaml:short
  std::string device;       // cpu, NVIDIA H200
  int64_t parameters = 0;
  int64_t samples_per_epoch = 0;
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;  // 0: not known beforehand (a limit in time)
  int64_t first_step = 0;   // > 0 after a resume
  int64_t global_batch = 0;
  int64_t tokens_per_sample = 0;  // 0: not a token model
  int64_t ranks = 1;
  std::string mesh = {};        // "data 2, shard 2"; empty: one rank
  double latency = 0;           // of a small all-reduce before the first step, seconds
  double flops_per_sample = 0;  // forward and backward, by the layers' formulas
  double peak_flops = 0;        // of the device, 0: not known, and then no MFU is printed
};

// How one rank spent a step, in seconds.
struct RankTime {
  double seconds = 0;
  double data_wait = 0;
  double comm_wait = 0;  // for other ranks, not hidden behind its own work
};

struct StepRecord {
  int64_t step = 0;   // 1 is the first
  int64_t epoch = 0;  // 0 is the first
  double loss = 0;
  double lr = 0;
  int64_t samples = 0;               // in this step, all ranks
  int64_t tokens = 0;                // 0: not a token model
  double seconds = 0;                // of this step, wall
  double data_wait = 0;              // part of it spent waiting for a batch
  int64_t memory = 0;                // bytes: peak RSS, or peak allocated on CUDA
  double tflops = 0;                 // achieved
  std::optional<double> grad_norm;   // if clipping or asked
  std::optional<double> loss_scale;  // fp16
  bool skipped = false;              // fp16: the scaler dropped this update
  double comm_wait = 0;              // part of `seconds` spent waiting for other ranks
  std::vector<RankTime> ranks = {};  // by rank; empty: one rank alone
  // Mixtures of experts: losses of the routers, a mean over samples summed over layers, and the
  // largest share of a layer's tokens that one expert got.
  std::optional<double> aux_loss = {}, max_load = {};
};

struct EpochRecord {
  int64_t epoch = 0;
  int64_t step = 0;  // the last of the epoch
  int64_t steps = 0;
  double train_loss = 0;  // mean of the epoch's steps
  double lr = 0;          // after the last step
  double seconds = 0;     // of the training part
  double samples_per_second = 0;
};

struct ValidRecord {
  std::string split = "valid";  // valid, test
  int64_t epoch = 0;
  int64_t step = 0;
  int64_t samples = 0;
  double loss = 0;
  double seconds = 0;
  std::map<std::string, double> metrics;  // rmse_u10, psnr, accuracy, ...
};

// Two fields side by side: "Visualization, t2m". Values are row-major floats, row 0 on top.
struct PictureRecord {
  std::string tag;
  int64_t step = 0;
  int64_t rows = 0, columns = 0;
  std::vector<std::pair<std::string, std::vector<float>>> panels = {};  // title, values
};

struct EventRecord {  // checkpoint saved, resumed, stopped early, ...
  std::string kind;
  int64_t step = 0;
  std::string text;
};

struct EndRecord {
  int64_t step = 0;
  double seconds = 0;
  std::string reason;  // steps, epochs, time, early_stop, signal, not_finite, out_of_memory
  std::map<std::string, double> metrics;
};

}  // namespace braid
