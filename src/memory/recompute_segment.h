// SPDX-License-Identifier: BSD-3-Clause
// One part of a model whose saved tensors are dropped and made again when the backward pass asks
// for the first of them. Owned by the hooks of these tensors: with the last of them it goes.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "braid/memory/recompute.h"
#include "braid/memory/tape.h"
#include "memory/recompute_modes.h"
#include "memory/recompute_value.h"
#include "memory/saved.h"

namespace braid::memory {

struct SegmentCounts {  // backward passes run on other threads
  std::atomic<int64_t> segments = 0, again = 0, kept = 0;
};

// An input as it waits: in the stash, or with whoever keeps what autograd saves outside of the
// segment (the ledger, a SavedScope, a segment around this one).
class SegmentInput {
 public:
  SegmentInput(const at::Tensor& input, Stash* stash);
  at::Tensor leaf() const;  // a tensor that begins a new graph
  bool changed() const;     // in place, since it was given

 private:
  std::shared_ptr<Stashed> stashed_;
  torch::autograd::SavedVariable saved_;
  Version version_;
  bool wants_grad_;
};

class Segment final : public std::enable_shared_from_this<Segment> {
 public:
  Segment(SegmentForward forward, SegmentOptions options, std::shared_ptr<SegmentCounts> counts);

  at::Tensor first_run(const std::vector<at::Tensor>& inputs);

  // For the hooks of saved tensors, which are numbered in the order in which they were saved.
  size_t drop(const at::Tensor& value);
  at::Tensor take(size_t number);  // from the second run, which it starts if need be
  void forget(size_t number);      // nobody will ask for it
  // A saved tensor of the second run. Throws StopSegment after the last that is wanted.
  void collect(const at::Tensor& value);

 private:
  struct Dropped {
    ValueMark mark;
    bool wanted = true;
    bool there = false;  // `again` is
    Kept again;
    Version version;  // of `again`
  };

  void second_run();
  void run_forward();
  void check_inputs(const char* when) const;
  void check_all_came() const;

  const SegmentForward forward_;
  const SegmentOptions options_;
  const std::shared_ptr<SegmentCounts> counts_;
  std::unique_ptr<Tape> tape_;  // null: nothing of the first run is kept
  std::vector<SegmentInput> inputs_;
  const AutocastModes autocast_ = autocast_modes();  // of the first run
  Generators generators_;                            // that it drew from, before it

  std::recursive_mutex mutex_;  // hooks may be asked and destroyed on several threads
  std::vector<Dropped> dropped_;
  size_t on_tape_ = 0;  // operators kept before the last saved tensor
  size_t came_ = 0;     // saved tensors of the second run
  size_t end_ = 0;      // behind the last one that is wanted
};

}  // namespace braid::memory
