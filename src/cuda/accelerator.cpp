// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/accelerator.h"

#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <vector>

namespace braid::cuda {
namespace {

using Allocator = c10::CachingDeviceAllocator::StatType;

class CudaMoment final : public Moment {
 public:
  explicit CudaMoment(c10::cuda::CUDAStream stream) {
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventRecord(event_, stream.stream()));
  }
  ~CudaMoment() override { C10_CUDA_CHECK_WARN(cudaEventDestroy(event_)); }
  void host_wait() override { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }
  void stream_wait() override {
    C10_CUDA_CHECK(cudaStreamWaitEvent(c10::cuda::getCurrentCUDAStream().stream(), event_));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaAccelerator final : public Accelerator {
 public:
  int count() const override { return c10::cuda::device_count(); }

  std::string name(int device) const override {
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return properties.name;
  }

  int64_t total_bytes(int device) const override { return memory(device).total; }
  int64_t free_bytes(int device) const override { return memory(device).free; }

  int64_t peak_allocated(int device) const override {
    const auto stats =
        c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    return stats.allocated_bytes[static_cast<size_t>(Allocator::AGGREGATE)].peak;
  }

  int64_t requested(int device) const override { return requested_bytes(device).current; }
  int64_t peak_requested(int device) const override { return requested_bytes(device).peak; }

  void listen_to_memory(MemoryListener* listener) override {
    using Entry = c10::CachingDeviceAllocator::TraceEntry;
    listener_ = listener;
    // Only allocators of devices that are there get the tracker.
    at::globalContext().lazyInitDevice(c10::kCUDA);
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([listener](const Entry& entry) {
      const auto* address = reinterpret_cast<const void*>(entry.addr_);
      if (entry.action_ == Entry::ALLOC)
        listener->taken(address, static_cast<int64_t>(entry.size_), entry.device_);
      else if (entry.action_ == Entry::FREE_REQUESTED)
        listener->freed(address);
    });
  }

  void reset_peak(int device) override {
    c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
  }

  void synchronize(int device) override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    c10::cuda::device_synchronize();
  }

  void allow_tf32(bool on) override {
    at::globalContext().setAllowTF32CuBLAS(on);
    at::globalContext().setAllowTF32CuDNN(on);
  }

  at::Tensor pinned_like(const at::Tensor& host) override {
    at::Tensor pinned = at::empty_like(host, host.options().pinned_memory(true));
    if (listener_ != nullptr) watch_pinned(pinned);
    return pinned;
  }

  at::Tensor copy_async(const at::Tensor& host, int device,
                        std::unique_ptr<Moment>& done) override {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAStream consumer = c10::cuda::getCurrentCUDAStream(index);
    const c10::cuda::CUDAStream copier = copy_stream(index);
    at::Tensor copy;
    {
      const c10::cuda::CUDAStreamGuard guard(copier);
      copy = host.to(c10::Device(c10::kCUDA, index), host.scalar_type(), /*non_blocking=*/true);
      done = std::make_unique<CudaMoment>(copier);
    }
    // The memory was taken on the copier's stream and is given back while the consumer may still
    // read it.
    c10::cuda::CUDACachingAllocator::recordStream(copy.storage().data_ptr(), consumer);
    return copy;
  }

 private:
  struct Memory {
    int64_t free, total;
  };
  struct Pinned {
    c10::DataPtr memory;
    MemoryListener* listener;
  };

  static void drop_pinned(void* pinned) {
    auto* held = static_cast<Pinned*>(pinned);
    held->listener->freed(held->memory.get());
    delete held;
  }

  // The host allocator tells nobody what it hands out, so the tensor's own release does.
  void watch_pinned(const at::Tensor& tensor) const {
    auto* storage = tensor.storage().unsafeGetStorageImpl();
    void* address = storage->mutable_data();
    listener_->taken_pinned(address, static_cast<int64_t>(storage->nbytes()));
    auto* held = new Pinned{std::move(storage->_mutable_data_ptr_no_checks()), listener_};
    storage->set_data_ptr_noswap({address, held, &drop_pinned, c10::Device(c10::kCPU)});
  }

  static c10::CachingAllocator::Stat requested_bytes(int device) {
    const auto stats =
        c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    return stats.requested_bytes[static_cast<size_t>(Allocator::AGGREGATE)];
  }

  static Memory memory(int device) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }

  c10::cuda::CUDAStream copy_stream(c10::DeviceIndex device) {
    while (streams_.size() <= static_cast<size_t>(device))
      streams_.push_back(c10::cuda::getStreamFromPool(
          /*isHighPriority=*/false, static_cast<c10::DeviceIndex>(streams_.size())));
    return streams_[device];
  }

  std::vector<c10::cuda::CUDAStream> streams_;
  MemoryListener* listener_ = nullptr;
};

}  // namespace
}  // namespace braid::cuda

extern "C" __attribute__((visibility("default"))) braid::Accelerator* braid_cuda_accelerator() {
  static braid::cuda::CudaAccelerator accelerator;
  return &accelerator;
}
