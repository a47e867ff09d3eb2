// SPDX-License-Identifier: BSD-3-Clause
// The whole config of a run as one struct: every section of a YAML file has its part here.
//
//   train::RunOptions run = train::load_run("configs/vit.yaml:short", {"train.steps=10"});
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "braid/checkpoint/store.h"
#include "braid/core/options.h"
#include "braid/core/precision.h"
#include "braid/data/options.h"
#include "braid/launch/options.h"
#include "braid/memory/options.h"
#include "braid/nn/loss.h"
#include "braid/nn/metrics.h"
#include "braid/nn/options.h"
#include "braid/optim/optimizer.h"
#include "braid/optim/scaler.h"
#include "braid/optim/schedule.h"
#include "braid/parallel/divergence.h"
#include "braid/parallel/mesh.h"
#include "braid/parallel/options.h"
#include "braid/report/sink.h"

namespace braid::train {

enum class LastBatch { drop, keep };  // the incomplete one at the end of an epoch
enum class UseGraph { automatic, on, off };

struct TrainOptions {
  int64_t steps = 0;  // 0: by epochs or time
  int64_t epochs = 0;
  std::optional<Seconds> time;          // stop, save and leave after this long
  std::optional<int64_t> global_batch;  // samples an update, over all ranks
  std::optional<int64_t> local_batch;   // the same, said a rank
  std::optional<int64_t> micro_batch;   // samples a forward pass; empty: the whole local batch; 0:
                                        // the most that fit (train::fit_to_memory finds them)
  LastBatch last_batch = LastBatch::drop;
  std::string precision = "fp32";
  std::optional<std::string> param, compute, stream, reduce, master;  // over the policy's dtypes
  Fp8 fp8 = Fp8::off;                                                 // linear layers of blocks
  nn::Loss loss = nn::Loss::mse;
  nn::Area area = nn::Area::automatic;  // weights of the rows in metrics of forecasts
  double clip = 0;                      // global L2 norm of the gradients, 0: no clipping
  double ema = 0;                       // decay of the averaged weights that are validated, 0: none
  int64_t zero = 0;
  bool keep_gathered = false;  // ZeRO-3: whole weights stay from forward to backward
  parallel::DivergenceOptions divergence;
  bool whole_epochs = false;        // round steps down to whole epochs
  bool initial_validation = false;  // validate before the first step
  bool look_for_nan = false;   // check each step and name the first bad parameter or activation
  bool tune = true;            // time the algorithms of matrix products at their first use (CUDA)
  bool deterministic = false;  // CUDA: kernels that add in one order alone, torch's choice of them
  UseGraph graph = UseGraph::automatic;  // replay the step as a CUDA graph
  std::string device = "auto";
  int64_t threads = 0;  // CPU threads of the math, 0: all cores
};

struct ValidOptions {
  int64_t every = 0;     // steps; 0: each epoch
  int64_t patience = 0;  // validations without improvement before the run stops; 0: never
  double min_delta = 0;  // what counts as an improvement
  std::string metric = "loss";
  bool highest = false;
  std::optional<int64_t> batch;      // samples a forward pass; empty: as in training
  bool test_at_end = true;           // if there are test data
  std::optional<double> psnr_range;  // none: max - min of each target; 0: the maximum of each
};

struct PlaceOptions {
  std::string name = "run";
  std::string dir;        // empty: runs/<name>
  std::string spec = {};  // not a key: what was typed, configs/vit.yaml:short, for the record
};

struct ProfileOptions {
  bool on = false;  // profile the first steps of the run
  int64_t wait = 1, warm_up = 3, steps = 5;
  bool repeat = false;  // again and again; files are large
  std::string dir;      // empty: <folder of the run>/profile
  // Not keys: what `braid profile` adds.
  int64_t overhead = 0;    // then so many steps with instruments and as many without, in turn
  bool then_stop = false;  // the run is over with the profile
};

struct OptimizerSection {
  optim::OptimizerOptions rule;
  optim::ScheduleOptions schedule;
  optim::ScalerOptions scaler;
};

struct RunOptions {
  int64_t seed = 0;
  PlaceOptions run;
  nn::ModelOptions model;
  data::DataOptions data;
  TrainOptions train;
  OptimizerSection optimizer;
  ValidOptions valid;
  checkpoint::CheckpointOptions checkpoint;
  report::ReportOptions report;
  parallel::MeshOptions mesh;
  parallel::ParallelOptions parallel;
  memory::MemoryOptions memory;
  ProfileOptions profile;
  launch::Options launch;
};

void describe(Fields& fields, TrainOptions& options);
void describe(Fields& fields, ValidOptions& options);
void describe(Fields& fields, PlaceOptions& options);
void describe(Fields& fields, ProfileOptions& options);
void describe(Fields& fields, OptimizerSection& options);
void describe(Fields& fields, RunOptions& options);

RunOptions load_run(const std::string& spec, const std::vector<std::string>& sets = {});
void check(const RunOptions& options);  // ConfigError for what cannot work together
std::string resolved_yaml(const RunOptions& options);
std::vector<OptionRow> all_options();  // of every section and every model, for help and docs

Precision policy_of(const TrainOptions& options);
int64_t global_batch_of(const TrainOptions& options, int64_t ranks);
std::string run_dir(const RunOptions& options);

}  // namespace braid::train
