// SPDX-License-Identifier: BSD-3-Clause
// Values inside a part of a model are not kept for the backward pass but computed again there.
//
//   const auto forward = [block](const auto& in) mutable { return block->forward(in[0]); };
//   y = memory::recompute(forward, {x});   // block: a module holder, captured by value
//
//   memory::Recompute again({.what = memory::Again::blocks, .segment = 2});
//   nn::Pass pass{.training = true, .segments = &again};
//
// Gradients are those without, to the bit, if the part is a function of its inputs and parameters:
// braid's dropout masks are functions of their place, and autocast and torch's default generators
// are for the second run as they were for the first. The second run ends with the last value that
// is wanted. If it comes to other values than the first one did, that is an error that names the
// segment: in number, shape and dtype always, in their bits with `check`.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "braid/core/recompute.h"
#include "braid/memory/options.h"
#include "braid/memory/stash.h"

namespace braid::memory {

struct RecomputeOptions {
  Again what = Again::none;                  // of blocks that are not named below
  int64_t segment = 1;                       // Again::blocks: blocks together; 0: square root
  std::map<std::string, Again> blocks = {};  // by name; "blocks.3" is also of "blocks.3.attn"
  bool check = false;                        // reads every value: slow
};
RecomputeOptions recompute_options(const MemoryOptions& options);

struct RecomputeCounts {
  int64_t segments = 0;  // that ran forward
  int64_t again = 0;     // second runs
  int64_t kept = 0;      // results of matmuls and of attention that were kept
};

class Recompute final : public SegmentRunner {
 public:
  // Inputs of segments wait in `stash`; null: as they are. Backward may come after this object, not
  // after the stash.
  explicit Recompute(RecomputeOptions options, Stash* stash = nullptr);
  ~Recompute() override;

  size_t together(const std::vector<std::string>& blocks, size_t first) const override;
  at::Tensor run(SegmentKind kind, const std::string& name, const std::vector<at::Tensor>& inputs,
                 const SegmentForward& forward) override;
  RecomputeCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct SegmentOptions {
  std::string name = "segment";  // in errors
  bool keep_matmuls = false;     // the first, third, ... result, and those of attention kernels
  bool check = false;
  Stash* stash = nullptr;
};

// One part by itself, for any LibTorch program. Parts nest.
at::Tensor recompute(const SegmentForward& forward, const std::vector<at::Tensor>& inputs,
                     const SegmentOptions& options = {});

}  // namespace braid::memory
