// SPDX-License-Identifier: BSD-3-Clause
// The step as a CUDA graph: the first steps of a shape run as they are, then one is captured and
// replayed for further batches. Learning rate and number of the step are scalars on the device, so
// a replay does what the same step would do, bit for bit.
//
//   StepGraph graph(accelerator()->capture_pool(0), device, body);
//   StepResult result = graph.run(batch, pass, {.lr = 3e-4, .shares = step.shares(batch)});
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "braid/core/accelerator.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"
#include "braid/train/step.h"

namespace braid::train {

// Why the step of such a run cannot be captured, as a sentence; empty: it can.
std::string graph_refusal(const RunOptions& options, c10::Device device, const Ranks& ranks);

// All scalars of a result as one tensor [n] in fp64, and back: `like` says which there are.
at::Tensor packed(const StepResult& result);
StepResult unpacked(const at::Tensor& values, const StepResult& like);

struct GraphStep {
  double lr = 0;
  std::vector<double> shares = {};  // of the loss, by micro-batch: they are part of the captured
  bool eager = false;               // instruments want to see the operators of this step
};

class StepGraph {
 public:
  using Body =
      std::function<StepResult(const data::Batch&, const nn::Pass&, const optim::LearningRate&)>;
  StepGraph(std::unique_ptr<CapturePool> pool, c10::Device device, Body body);

  StepResult run(const data::Batch& batch, const nn::Pass& pass, const GraphStep& step);
  void forget();  // weights or states are other tensors now
  // Other work in the memory of the graphs: what it leaves alive there must not be read after the
  // next step.
  void beside(const std::function<void()>& work) { pool_->run(work); }
  const std::string& failure() const { return failure_; }  // why nothing is captured any more
  int64_t replays() const { return replays_; }

 private:
  struct Shape {  // what a captured step depends on beside the numbers in its batch
    std::vector<int64_t> input, target;
    c10::ScalarType input_dtype, target_dtype;
    std::vector<double> shares;
    int64_t first = 0, samples = 0;
    bool operator==(const Shape&) const = default;
  };
  struct Entry {
    Shape shape;
    const void *input = nullptr, *target = nullptr;  // memory that the graph reads
    at::Tensor own_input, own_target;                // the same, if it is the graph's own
    std::unique_ptr<Captured> captured;
    StepResult result;  // overwritten by each replay
    at::Tensor values;  // packed
  };
  struct Seen {
    Shape shape;
    int steps = 0;
  };

  StepResult eager(const data::Batch& batch, const nn::Pass& pass, double lr);
  StepResult replay(Entry& entry, const data::Batch& batch);
  bool stays(const Shape& shape, const data::Batch& batch) const;
  Entry* find(const Shape& shape, const data::Batch& batch);
  Entry* capture(const Shape& shape, const data::Batch& batch, nn::Pass pass);
  bool warm(const Shape& shape);

  std::unique_ptr<CapturePool> pool_;
  Body body_;
  at::Tensor lr_, step_;  // fp64 and int64 scalars that a replay reads
  std::vector<Seen> seen_;
  std::list<Entry> entries_;
  std::string failure_;
  int64_t replays_ = 0;
};

}  // namespace braid::train
