// SPDX-License-Identifier: BSD-3-Clause
// The training loop of one run: steps, validation, checkpoints, records.
//
//   train::Trainer trainer(*model, {.train = corpus}, options, sink, log);
//   trainer.resume();   // continues bit-exactly from the newest whole checkpoint, if there is one
//   EndRecord end = trainer.fit();
#pragma once
#include <memory>
#include <string>

#include "braid/core/log.h"
#include "braid/core/record.h"
#include "braid/core/state.h"
#include "braid/data/source.h"
#include "braid/nn/model.h"
#include "braid/report/sink.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"

namespace braid::train {

struct Splits {
  std::shared_ptr<const data::Source> train;
  std::shared_ptr<const data::Source> valid = nullptr;  // none: no validation
  std::shared_ptr<const data::Source> test = nullptr;   // none: no test at the end
};

class Trainer {
 public:
  Trainer(nn::Model& model, Splits data, RunOptions options, report::Sink& sink, Log& log,
          Ranks ranks = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  bool resume();    // false: there is no checkpoint, and the run starts from the beginning
  EndRecord fit();  // until the limit, a signal or early stop; throws NotFiniteError
  ValidRecord evaluate(data::Split split);

  State state() const;  // what a checkpoint holds: of many ranks, the pieces of this one

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// auto: the GPU if there is one. Throws ConfigError.
c10::Device device_of(const TrainOptions& options, int gpu = 0);
// Dense peak of a known GPU for a compute dtype, FLOP/s; 0 if not known.
double known_peak_flops(const std::string& device_name, const Precision& policy);

}  // namespace braid::train
