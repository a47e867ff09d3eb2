// SPDX-License-Identifier: BSD-3-Clause
// The parts of a run and where it stands. trainer.cpp holds the loop, trainer_parts.cpp what
// surrounds it.
#pragma once
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "braid/checkpoint/store.h"
#include "braid/core/error.h"
#include "braid/data/loader.h"
#include "braid/parallel/divergence.h"
#include "braid/train/evaluate.h"
#include "braid/train/expected.h"
#include "braid/train/profiler.h"
#include "braid/train/stop.h"
#include "braid/train/trainer.h"
#include "train/own_model.h"
#include "train/recorder.h"
#include "train/step_parts.h"

namespace braid::train {

// Why a rank wants to stop; the largest wish of all counts.
enum class Stop : uint8_t { none, time, signal };

struct Trainer::Impl {
  using Clock = std::chrono::steady_clock;

  Impl(nn::Model& model, Splits data, RunOptions options, report::Sink& sink, Log& log,
       Ranks ranks);

  EndRecord fit();
  // Runs a part of the run; an allocation that fails in it ends with a report and MemoryError.
  template <class Body>
  auto within_memory(const Body& body);
  std::string doing() const;  // e.g. "step 3, backward"
  bool resume();
  ValidRecord evaluate(data::Split split);
  State state();
  State weights() const;
  State wanted(const State& saved, const std::set<std::string>& elsewhere);
  void take_values(const State& saved);

  bool out_of_budget();  // sets `reason`
  Profiler make_profiler();
  void mark_alive() const;                // what the instruments of a profile find there
  Stop wish() const;                      // of this rank
  void progress(const char* what) const;  // "checkpoint of step" 17, told to the watch
  RankReport report(double weight) const;
  void take_reports();
  void settle();  // what was recorded so far goes out; all ranks together
  void train_on(const data::Batch& batch);
  StepResult run_step(const data::Batch& batch, const nn::Pass& pass, double lr);
  StepResult counted_step(const data::Batch& batch, const nn::Pass& pass, double lr);
  void check_graph() const;
  void tell_of_graph();
  void look_for_bad_values(const data::Batch& batch, nn::Pass pass);
  std::string bad_value_in(const data::Batch& batch, const Forward& forward);
  bool any_rank(bool here) const;
  void between_steps(const data::Batch& batch);
  void end_epoch();
  void validate();
  void watch_progress();
  void draw_picture();
  at::Tensor picture_output();
  void save();
  void tell_of_save(bool wait);
  EndRecord finish();
  EndRecord end_record() const;
  void train_until_done();
  void check_metric_names();
  void watch_divergence();
  ValidRecord agreed_record(const ValidRecord& mine) const;
  std::set<std::string> names_elsewhere() const;
  int64_t parameters() const;
  void limit_steps();
  int64_t first_step() const;
  int64_t step_after(int64_t epochs) const;
  void open_plan();                        // of the run's folder
  void compare_with_plan(double seconds);  // of a step
  int64_t peak_of_tensors() const;         // 0: nobody counts
  RunInfo run_info() const;
  int64_t memory_in_use() const;
  ConfigError unknown_metric(const std::string& key, const std::string& name,
                             const std::vector<std::string>& known) const;

  std::string now, phase;  // what the run does, as `ranks` are told
  OwnModel own;
  nn::Model& model;
  Splits data;
  RunOptions options;
  report::Sink& sink;
  Log& log;
  Ranks ranks;

  c10::Device device;
  int64_t global_batch;
  data::Loader loader;
  StepParts parts;
  checkpoint::Store store;
  std::filesystem::path being_saved;  // empty: none
  std::optional<parallel::Divergence> divergence;
  Recorder recorder;
  std::unique_ptr<Profiler> profiler;
  const StopSignals* signals = nullptr;  // while fit() runs
  optim::ScheduleContext schedule;
  double flops_per_sample;  // by the layers' formulas until a step was counted
  bool flops_counted = false;
  bool graph_told = false;

  int64_t step = 0;         // done so far
  int64_t epoch = 0;        // of the last step
  int64_t total_steps = 0;  // 0: limited by time alone
  int64_t saved_step = -1;
  int64_t validated_step = -1;  // whose weights last_metrics belong to
  double epoch_seconds = 0;
  double best = std::numeric_limits<double>::infinity();
  int64_t validations_since_best = 0;
  std::map<std::string, double> last_metrics;
  std::optional<data::Batch> picture_batch;
  Stop agreed = Stop::none;                                 // what the ranks said in the last round
  std::optional<std::pair<StepRecord, StepResult>> unsent;  // waits for the times of all ranks
  PlanWatch plan;
  int64_t peak_bytes = 0;  // of the steps beside the plan
  std::string reason;      // why the run ends; empty while it goes on
  Clock::time_point started = Clock::now();
  Clock::time_point last_step_end = Clock::now();
};

}  // namespace braid::train
