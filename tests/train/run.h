// SPDX-License-Identifier: BSD-3-Clause
// Small runs for tests: a config as text, a sink that keeps what the run says, the weights at the
// end.
#pragma once
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "braid/data/loader.h"
#include "braid/train/session.h"
#include "braid/train/trainer.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::train {

// 70 training points in batches of 14: 5 steps an epoch; 15 points to validate, 15 to test.
inline const std::string mlp_run = R"(
seed: 3
model: {name: mlp, inputs: 2, hidden: [16, 8], outputs: 2, dropout: 0.2}
data: {kind: spiral, points: 100, workers: 0}
train: {steps: 12, global_batch: 14, loss: cross_entropy, device: cpu}
optimizer: {name: adam, lr: 1e-2}
report: {to: []}
)";

inline const std::string vit_run = R"(
seed: 3
model: {name: vit, image: [8, 16], patch: 4, channels_in: 3, channels_out: 3, width: 16, depth: 2, heads: 2}
data: {kind: synthetic, input_shape: [3, 8, 16], samples: 20, workers: 0}
train: {steps: 6, global_batch: 4, loss: relative_l2, device: cpu}
optimizer: {name: adam, lr: 1e-3}
report: {to: []}
)";

inline const std::string gpt_run = R"(
seed: 3
model: {name: gpt, vocabulary: 32, sequence: 8, layers: 1, heads: 2, width: 16}
data: {kind: synthetic, input_shape: [8], target_shape: [8], classes: 32, samples: 12, workers: 0}
train: {steps: 6, global_batch: 4, loss: cross_entropy, device: cpu}
optimizer: {name: adam, lr: 1e-3}
report: {to: []}
)";

inline RunOptions run_of(const std::string& yaml, const std::vector<std::string>& sets = {}) {
  const test::TempDir dir;
  std::ofstream(dir / "run.yaml") << yaml;
  return load_run((dir / "run.yaml").string(), sets);
}

class Collect final : public report::Sink {
 public:
  std::function<void(const StepRecord&)> on_step;
  RunInfo info;
  std::vector<StepRecord> steps;
  std::vector<EpochRecord> epochs;
  std::vector<ValidRecord> valids;
  std::vector<EventRecord> events;
  std::vector<EndRecord> ends;

  void start(const RunInfo& record) override { info = record; }
  void step(const StepRecord& record) override {
    steps.push_back(record);
    if (on_step) on_step(record);
  }
  void epoch(const EpochRecord& record) override { epochs.push_back(record); }
  void valid(const ValidRecord& record) override { valids.push_back(record); }
  void event(const EventRecord& record) override { events.push_back(record); }
  void end(const EndRecord& record) override { ends.push_back(record); }
};

// A run in a folder, with the parts that a test wants to touch before fit().
struct TestRun {
  explicit TestRun(RunOptions run) : TestRun(run, open_splits(run)) {}
  TestRun(RunOptions run, Splits splits)
      : options(std::move(run)),
        log({.file = log_file.string(), .quiet = true}),
        model(build_model(options)),
        trainer(*model, std::move(splits), options, sink, log) {}

  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> all;
    for (const Param& param : model->params()) all[param.name] = param.tensor.detach().clone();
    return all;
  }
  std::string lines() const {
    std::ifstream in(log_file);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  test::TempDir temp;
  std::filesystem::path log_file = temp / "out.log";
  RunOptions options;
  Collect sink;
  Log log;
  std::unique_ptr<nn::Model> model;
  Trainer trainer;
};

inline void expect_same_bits(const std::map<std::string, at::Tensor>& a,
                             const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
}

// All samples of a source as one batch.
inline data::Batch whole(const data::Source& source) {
  data::Loader loader(std::shared_ptr<const data::Source>(&source, [](const data::Source*) {}),
                      {.global_batch = source.size(), .shuffle = false, .workers = 0});
  return *loader.next();
}

// Another source with one sample spoilt.
class Spoilt final : public data::Source {
 public:
  Spoilt(std::shared_ptr<const data::Source> from, int64_t which) : from_(from), which_(which) {}
  int64_t size() const override { return from_->size(); }
  const data::SampleSpec& spec() const override { return from_->spec(); }
  void read(data::Access access, const data::Sample& out) const override {
    from_->read(access, out);
    if (access.index == which_) out.input.fill_(std::numeric_limits<float>::quiet_NaN());
  }
  std::string describe(int64_t index) const override { return from_->describe(index); }

 private:
  std::shared_ptr<const data::Source> from_;
  int64_t which_;
};

// Tokens of which some targets do not count: sample i has i ignored ones.
class Ragged final : public data::Source {
 public:
  explicit Ragged(int64_t size) : size_(size) {
    spec_.input = {{8}, c10::kLong};
    spec_.target = {{8}, c10::kLong};
    spec_.tokens = 8;
  }
  int64_t size() const override { return size_; }
  const data::SampleSpec& spec() const override { return spec_; }
  void read(data::Access access, const data::Sample& out) const override {
    for (int64_t i = 0; i < 8; ++i) {
      out.input.mutable_data_ptr<int64_t>()[i] = (access.index * 5 + i * 3) % 32;
      out.target.mutable_data_ptr<int64_t>()[i] =
          i < access.index % 8 ? nn::ignored_target : (access.index + i) % 32;
    }
  }
  std::string describe(int64_t index) const override { return "ragged " + std::to_string(index); }

 private:
  int64_t size_;
  data::SampleSpec spec_;
};

}  // namespace braid::train
