// SPDX-License-Identifier: BSD-3-Clause
// A layout of many ranks, run dry: the real step of every kind of rank, one after the other, on
// tensors that are not there and groups that are not there.
//
//   plan::LayoutRun run = plan::dry_layout(options, 16384);
//   for (const plan::RankRun& rank : run.ranks) std::cout << rank.memory.peak.bytes;
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "braid/comm/backend.h"
#include "braid/memory/ledger.h"
#include "braid/memory/operator_log.h"
#include "braid/train/options.h"

namespace braid::plan {

// A call of a rank, between two of its operators.
struct Message {
  comm::Kind kind = comm::Kind::barrier;
  std::string group;       // as the mesh names it
  std::vector<int> ranks;  // of the group, as ranks of the world
  int peer = -1, tag = 0;  // of a message: a rank of the world
  int64_t bytes = 0;       // of the whole tensor that it is about
  double wire_bytes = 0;   // that a rank sends, by the ring algorithms
  int64_t from = 0;        // begins after so many operators
  int64_t until = 0;       // its result is waited for after so many
};

// Copies between device and host stand among the operators (aten::copy_ from one to the other).
struct Copy {
  int64_t op = 0;  // which operator
  int64_t bytes = 0;
  bool to_host = false;
  bool beside = false;  // on a stream of its own
};

struct RegionMark {
  std::string name;  // forward, backward, optimizer
  int64_t micro = -1;
  int64_t from = 0, until = 0;  // operators
};

struct RankTrace {  // of a steady step
  std::vector<memory::Operator> operators;
  std::vector<Message> messages;  // in the order of their beginnings
  std::vector<Copy> copies;
  std::vector<RegionMark> regions;
};

struct MomentBytes {
  int64_t allocated = 0;  // requested by tensors
  int64_t reserved = 0;   // by the caching allocator for them, with its gaps
  memory::Peak peak;      // of its `alive` the largest ones alone
  // Of all but the scratch of kernels, which a dry run cannot know of every kernel: most at one
  // time, and what it was for.
  int64_t without_scratch = 0;
  memory::KindBytes kinds_without_scratch = {};
  std::map<std::string, memory::Scratch> scratch = {};  // as far as it is known, by operator
};

struct RankMemory {
  MomentBytes first_step, steady_step, evaluation, checkpoint;
  memory::Peak peak;             // the highest of them
  std::string moment;            // which: first step, step, evaluation, checkpoint
  int64_t reserved = 0;          // highest
  int64_t workspace = 0;         // of cuBLAS and cuDNN, within reserved
  int64_t nccl = 0;              // buffers of communicators, outside of it
  int64_t context = 0;           // of the driver
  int64_t host = 0, pinned = 0;  // most at one time
  int64_t device() const { return reserved + nccl + context; }
};

// One rank of a kind, for all that do the same.
struct RankRun {
  int64_t rank = 0;
  int64_t like = 1;   // ranks of this kind
  int64_t stage = 0;  // of the pipeline axis
  std::string name;   // all; first stage; stages 2 to 7; last stage
  RankMemory memory;
  RankTrace trace;
};

struct LayoutRun {
  train::RunOptions options;
  int64_t world = 1;
  std::vector<RankRun> ranks;      // by stage
  std::vector<size_t> kind_of;     // of each rank of the pipeline axis: which of `ranks`
  int64_t parameters = 0;          // of the whole model
  double flops = 0;                // of a step, all ranks, without what is computed again
  double samples = 0, tokens = 0;  // of a step; tokens 0 where the model has none
  double seconds = 0;              // that the dry run took
};

struct LayoutOptions {
  c10::Device device = c10::Device(c10::kCUDA, 0);
  bool trace = true;  // operators and messages; without, memory alone
  bool evaluation = true;
  int64_t context = 0;  // bytes of the driver, of the cluster
  int64_t gemm_workspace = 0;
  bool expandable = true;  // segments of the CUDA allocator grow, as braid sets it up
  std::vector<double> expert_load = {1.0};  // of ranks, over an even spread; the fullest is run
};

// ConfigError for a layout that the trainer refuses; InternalError with its name for an operator
// without a Meta kernel.
LayoutRun dry_layout(const train::RunOptions& options, int64_t world,
                     const LayoutOptions& how = {});

}  // namespace braid::plan
