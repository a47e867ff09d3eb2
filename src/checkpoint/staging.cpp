// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/staging.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace braid::checkpoint {
namespace {

constexpr int64_t staging_align = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + staging_align - 1) / staging_align * staging_align;
}

int64_t bytes_of_part(const Part& part) {
  return part.piece.count * static_cast<int64_t>(c10::elementSize(part.piece.dtype));
}

// The run of the state's tensor that a part is; where the tensor lies.
at::Tensor run_of(const Part& part, const State& state) {
  const at::Tensor tensor = state.tensors.at(part.piece.name).detach();
  const auto found = state.pieces.find(part.piece.name);
  const int64_t first = found == state.pieces.end() ? 0 : found->second.first;
  return tensor.reshape({-1}).narrow(0, part.piece.first - first, part.piece.count);
}

bool on_device(const State& state) {
  for (const auto& [name, tensor] : state.tensors)
    if (tensor.is_cuda()) return true;
  return false;
}

// Large pages: the first save would spend more time on page faults than on its copy.
at::Tensor host_memory(int64_t bytes, bool pinned) {
  const at::Tensor memory = at::empty({bytes}, at::TensorOptions(c10::kByte).pinned_memory(pinned));
  constexpr uintptr_t page = uintptr_t{2} << 20;
  auto* const start = static_cast<std::byte*>(memory.mutable_data_ptr());
  const uintptr_t skip = (page - reinterpret_cast<uintptr_t>(start) % page) % page;
  const auto all = static_cast<uintptr_t>(bytes);
  const uintptr_t whole = all > skip ? (all - skip) / page * page : 0;
  if (!pinned && whole > 0)  // a wish: it may be refused
    (void)::madvise(start + skip, whole, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

void Staging::take(std::vector<ShardPlan>& plans, const State& state) {
  int64_t bytes = 0;
  for (const ShardPlan& plan : plans)
    for (const Part& part : plan.parts) bytes += aligned(bytes_of_part(part));
  if (!buffer_.defined() || buffer_.numel() < bytes) {
    buffer_.reset();  // before the new one is there: a share may be most of the memory
    buffer_ = host_memory(bytes, on_device(state));
  }
  int64_t at = 0;
  for (ShardPlan& plan : plans)
    for (Part& part : plan.parts) {
      at::Tensor copy = buffer_.narrow(0, at, bytes_of_part(part)).view(part.piece.dtype);
      copy.copy_(run_of(part, state));
      part.host = [copy = std::move(copy)] { return at::Tensor(copy); };
      at += aligned(bytes_of_part(part));
    }
}

void take_late(std::vector<ShardPlan>& plans, const State& state) {
  for (ShardPlan& plan : plans)
    for (Part& part : plan.parts) {
      const at::Tensor run = run_of(part, state);
      part.host = [run] { return run.to(c10::kCPU).contiguous(); };
    }
}

}  // namespace braid::checkpoint
