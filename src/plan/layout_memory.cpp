// SPDX-License-Identifier: BSD-3-Clause
#include "plan/layout_memory.h"

#include <algorithm>
#include <utility>

namespace braid::plan {
namespace {

// NCCL 2.2x. A connection has a buffer for each of its three protocols, on the side that receives:
// 4 MiB (NCCL_BUFFSIZE); 120 elements of 8 bytes x 640 threads x 8 steps; 8 lines of 16 bytes x 512
// threads x 8 steps. Connections are made for what is used: a ring over 16 channels for
// collectives; two channels to each peer of messages.
constexpr int64_t simple_buffer = 4 << 20, ll128_buffer = int64_t{120} * 640 * 8 * 8,
                  ll_buffer = int64_t{8} * 512 * 8 * 16;
constexpr size_t most_alive = 64;  // blocks that are kept of a peak
constexpr int64_t ring_channels = 16, message_channels = 2;

const train::Phase* phase_named(const train::Life& life, std::string_view part) {
  if (part == "first step") return &life.first_step;
  if (part == "step") return &life.step;
  if (part == "checkpoint") return &life.checkpoint;
  return part == "evaluation" ? &life.evaluation : nullptr;
}

MomentBytes* moment_named(RankMemory& memory, std::string_view part) {
  if (part == "first step") return &memory.first_step;
  if (part == "step") return &memory.steady_step;
  if (part == "checkpoint") return &memory.checkpoint;
  return part == "evaluation" ? &memory.evaluation : nullptr;
}

}  // namespace

int64_t nccl_bytes(const std::vector<train::LifeGroup>& groups) {
  int64_t bytes = 0;
  for (const train::LifeGroup& group : groups) {
    if (group.collectives) bytes += ring_channels * (simple_buffer + ll128_buffer + ll_buffer);
    bytes += group.peers * message_channels * (simple_buffer + ll_buffer);
  }
  return bytes;
}

MemoryOfLife::MemoryOfLife(const train::RunOptions& options, const LayoutOptions& how)
    : place_(memory::place_of(how.device)),
      gpu_(how.device.is_cuda()),
      staged_(options.checkpoint.background),
      context_(how.context),
      replay_({.expandable = how.expandable}, gpu_ ? how.gemm_workspace : 0) {}

void MemoryOfLife::add(std::string_view part, const memory::Ledger& ledger,
                       const train::Life& so_far) {
  if (gpu_) replay_.play(ledger.history(place_), part == "first step" ? so_far.backward_began : -1);
  MomentBytes* moment = moment_named(memory_, part);
  if (moment == nullptr) return;
  const train::Phase& phase = *phase_named(so_far, part);
  moment->peak = phase.peak;
  if (moment->peak.alive.size() > most_alive) moment->peak.alive.resize(most_alive);
  moment->without_scratch = phase.without_scratch.bytes;
  moment->kinds_without_scratch = phase.without_scratch.by_kind;
  moment->scratch = phase.scratch;
  moment->allocated = gpu_ ? replay_.allocator().peak_requested() : phase.peak.bytes;
  moment->reserved = gpu_ ? replay_.allocator().peak_reserved() : phase.peak.bytes;
  memory_.reserved = std::max(memory_.reserved, moment->reserved);
  memory_.host = std::max(memory_.host, phase.host);
  memory_.pinned = std::max(memory_.pinned, phase.pinned);
  if (moment->peak.bytes <= memory_.peak.bytes) return;
  memory_.peak = moment->peak;
  memory_.moment = part;
}

RankMemory MemoryOfLife::finish(const train::Life& life) {
  if (staged_) {  // stays from one save to the next, beside all steps
    memory_.host += life.staged;
    if (gpu_) memory_.pinned += life.staged;
  }
  memory_.workspace = replay_.workspaces();
  memory_.context = context_;
  memory_.nccl = gpu_ ? nccl_bytes(life.groups) : 0;
  return std::move(memory_);
}

}  // namespace braid::plan
