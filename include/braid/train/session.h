// SPDX-License-Identifier: BSD-3-Clause
// From a config to a run: what `braid train` does, for programs that want the same.
//
//   train::Session session = train::open_session(train::load_run("configs/vit.yaml:demo"));
//   EndRecord end = session.trainer->fit();
#pragma once
#include <memory>
#include <set>
#include <string>

#include "braid/core/log.h"
#include "braid/nn/model.h"
#include "braid/report/sink.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"
#include "braid/train/trainer.h"

namespace braid::train {

struct SessionOptions {
  report::Terminal terminal = {};
  Ranks ranks = {};    // of a Job; as it is: one rank alone, or fit() meets the others
  bool alone = false;  // fit(): this process is a run of its own, whatever a launcher says
  bool resume = false;
  bool quiet = false;            // no lines and no bar on the terminal
  bool profile = false;          // training data alone; what lies in the folder stays as it is
  std::string config_spec = {};  // as typed, for the record
};

struct Session {
  std::unique_ptr<Log> log;
  std::unique_ptr<report::Sinks> sinks;
  std::unique_ptr<nn::Model> model;
  std::unique_ptr<Trainer> trainer;
};

// Trains a model of your own program into options' run folder, with lines on the terminal. Where a
// launcher (torchrun, mpirun, srun, launch::spawn) started several ranks, they meet and train one
// run. What a config asks of a model is done around a class of your own (precision by casts and
// torch's autocast), or refused by a ConfigError that names what the model lacks. In config.yaml
// the model is the config's if it has its parameters, else model.name is own.
EndRecord fit(nn::Model& model, Splits data, const RunOptions& options,
              SessionOptions session = {});

// Makes the run folder, writes config.yaml into it, opens data and model. Without `resume`, a
// folder that already holds checkpoints is refused, so that nothing saved is lost.
Session open_session(const RunOptions& options, SessionOptions session = {});

// What would be refused on so many ranks, before they are started. Throws ConfigError.
void check_ranks(const RunOptions& options, int64_t world, bool resume);

Splits open_splits(const RunOptions& options);
// What this rank holds of the model, on the device that options name; without memory where ZeRO-3
// shares it out.
std::unique_ptr<nn::Model> build_model(const RunOptions& options, const Ranks& ranks = {});

// Where weights come from and what helps if they do not fit, for the message.
struct WeightsOrigin {
  std::string name = "the checkpoint";
  std::string fix = "resume with the config that wrote it, or start anew without --resume";
};
// Takes the parameters by name; a missing one, one too many or another shape is a StorageError, and
// then the model is as before. `elsewhere`: names that other ranks of a pipeline hold.
void check_weights(const nn::Model& model, const State& weights, const WeightsOrigin& origin = {},
                   const std::set<std::string>& elsewhere = {});
void copy_weights(nn::Model& model, const State& weights, const WeightsOrigin& origin = {});
// Shapes of data and model that cannot meet are refused before the first step.
void check_shapes(const RunOptions& options, const data::SampleSpec& spec);

}  // namespace braid::train
