// SPDX-License-Identifier: BSD-3-Clause
#include "memory/real_blocks.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "braid/core/accelerator.h"
#include "memory/recorder.h"

namespace braid::memory {
namespace {

// Blocks by address. An allocator has no object of ours to hang them on: a freed address is all
// that it is told.
class BlockTable {
 public:
  void put(const void* address, BlockPtr block) {
    const std::lock_guard lock(mutex_);
    blocks_[address] = std::move(block);
    count_.store(blocks_.size(), std::memory_order_relaxed);
  }

  BlockPtr find(const void* address) {
    if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(address);
    return found == blocks_.end() ? nullptr : found->second;
  }

  BlockPtr remove(const void* address) {
    if (count_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return nullptr;
    BlockPtr block = std::move(found->second);
    blocks_.erase(found);
    count_.store(blocks_.size(), std::memory_order_relaxed);
    return block;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, BlockPtr> blocks_;
  std::atomic<size_t> count_ = 0;
};

// Never destroyed: memory is freed while the process ends, too.
BlockTable& block_table() {
  static auto* table = new BlockTable;
  return *table;
}

c10::Allocator*& cpu_allocator_below() {
  static c10::Allocator* below = nullptr;
  return below;
}

void free_watched(void* address) {
  free_block(block_table().remove(address));
  cpu_allocator_below()->raw_deleter()(address);
}

// False if nobody counts on this thread.
bool count_block(const void* address, int64_t bytes, Place place) {
  Recorder* recording = recorder();
  if (recording == nullptr || recording->ledger == nullptr) return false;
  block_table().put(address, recording->take(bytes, place));
  return true;
}

class WatchedCpu final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = cpu_allocator_below()->allocate(bytes);
    if (memory.get() == nullptr) return memory;
    // Throws beyond a limit: `memory` then gives itself back.
    if (!count_block(memory.get(), static_cast<int64_t>(bytes), cpu)) return memory;
    // Address and context must be one pointer: oneDNN asks for raw memory.
    void* address = memory.release_context();
    return {address, address, &free_watched, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_watched; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    cpu_allocator_below()->copy_data(to, from, bytes);
  }
};

class WatchedCuda final : public MemoryListener {
 public:
  void taken(const void* address, int64_t bytes, int device) override {
    count_block(address, bytes, cuda(device));
  }
  void taken_pinned(const void* address, int64_t bytes) override {
    count_block(address, bytes, pinned_host);
  }
  void freed(const void* address) override { free_block(block_table().remove(address)); }
};

}  // namespace

void watch_real_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    cpu_allocator_below() = c10::GetCPUAllocator();
    c10::SetCPUAllocator(new WatchedCpu, /*priority=*/255);
    if (accelerator() != nullptr) accelerator()->listen_to_memory(new WatchedCuda);
  });
}

// On a CPU the deleter tells of the end; the allocator of CUDA tells of each.
BlockPtr adopt_block(const c10::Storage& storage, Ledger::State& ledger) {
  c10::DataPtr& memory = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  const c10::Device device = storage.device();
  if (memory.get() == nullptr || !(device.is_cpu() || device.is_cuda())) return nullptr;
  const bool seen = device.is_cuda() || (memory.get() == memory.get_context() &&
                                         memory.compare_exchange_deleter(
                                             cpu_allocator_below()->raw_deleter(), &free_watched));
  if (!seen) return nullptr;
  BlockPtr block = ledger.take(static_cast<int64_t>(storage.nbytes()), place_of(device),
                               /*kind=*/-1, /*module=*/0, /*op=*/0);
  block_table().put(memory.get(), block);
  return block;
}

BlockPtr real_block(const c10::Storage& storage) {
  return block_table().find(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
}

}  // namespace braid::memory
