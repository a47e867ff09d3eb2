// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/accelerator.h"

#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "cuda/products.h"

namespace braid::cuda {
namespace {

using Pool = c10::CachingAllocator::StatType;

class CudaMoment final : public Moment {
 public:
  explicit CudaMoment(c10::cuda::CUDAStream stream) {
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventRecord(event_, stream.stream()));
  }
  ~CudaMoment() override { C10_CUDA_CHECK_WARN(cudaEventDestroy(event_)); }
  void host_wait() override { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }
  void stream_wait() override { hold_back(c10::cuda::getCurrentCUDAStream()); }
  void hold_back(c10::cuda::CUDAStream stream) const {
    C10_CUDA_CHECK(cudaStreamWaitEvent(stream.stream(), event_));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Segments that grow leave no gaps between them: a step close to the limit of a GPU fits. Whoever
// has set up the allocator from outside keeps what he said.
void grow_segments() {
  if (c10::CachingAllocator::getAllocatorSettings().empty())
    c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
}

class CudaAccelerator final : public Accelerator {
 public:
  CudaAccelerator() { grow_segments(); }

  int count() const override { return c10::cuda::device_count(); }

  std::string name(int device) const override {
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return properties.name;
  }

  int capability(int device) const override {
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return 10 * properties.major + properties.minor;
  }

  int64_t total_bytes(int device) const override { return board(device).total; }
  int64_t free_bytes(int device) const override { return board(device).free; }

  int64_t peak_allocated(int device) const override {
    return of_all(stats(device).allocated_bytes).peak;
  }
  int64_t requested(int device) const override {
    return of_all(stats(device).requested_bytes).current;
  }
  int64_t peak_requested(int device) const override {
    return of_all(stats(device).requested_bytes).peak;
  }
  int64_t peak_reserved(int device) const override {
    return of_all(stats(device).reserved_bytes).peak;
  }

  DeviceMemory memory(int device) const override {
    const auto now = stats(device);
    size_t largest = 1;  // 0 would ask the driver for what nobody has reserved yet
    c10::cuda::CUDACachingAllocator::cacheInfo(static_cast<c10::DeviceIndex>(device), &largest);
    return {.allocated = of_all(now.allocated_bytes).current,
            .reserved = of_all(now.reserved_bytes).current,
            .largest_free = largest > 1 ? static_cast<int64_t>(largest) : 0};
  }

  void limit_memory(int device, int64_t bytes) override {
    at::globalContext().lazyInitDevice(c10::kCUDA);
    const auto total = static_cast<double>(total_bytes(device));
    const double part = bytes > 0 ? static_cast<double>(bytes) / total : 1;
    c10::cuda::CUDACachingAllocator::setMemoryFraction(std::min(part, 1.0),
                                                       static_cast<c10::DeviceIndex>(device));
  }

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

  void tune_products(bool on) override { cuda::tune_products(on); }

  at::Tensor pinned_like(const at::Tensor& host) override {
    at::Tensor pinned = at::empty_like(host, host.options().device(c10::kCPU).pinned_memory(true));
    if (listener_ != nullptr) watch_pinned(pinned);
    return pinned;
  }

  at::Tensor copy_async(const at::Tensor& host, int device,
                        std::unique_ptr<Moment>& done) override {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAStream consumer = c10::cuda::getCurrentCUDAStream(index);
    const c10::cuda::CUDAStream copier = stream_of(Way::batches, index);
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

  std::unique_ptr<Moment> copy_beside(const at::Tensor& to, const at::Tensor& from) override {
    const c10::Device device = to.is_cuda() ? to.device() : from.device();
    const c10::cuda::CUDAStream given = c10::cuda::getCurrentCUDAStream(device.index());
    const c10::cuda::CUDAStream copier =
        stream_of(to.is_cuda() ? Way::to_device : Way::to_host, device.index());
    const CudaMoment before(given);
    const c10::cuda::CUDAStreamGuard guard(copier);
    before.hold_back(copier);
    to.copy_(from, /*non_blocking=*/true);
    return std::make_unique<CudaMoment>(copier);
  }

 private:
  // Each way has a stream: copies to the host do not wait for those to the device.
  enum class Way : uint8_t { batches, to_host, to_device };
  struct Board {
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

  static c10::CachingDeviceAllocator::DeviceStats stats(int device) {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  }
  static c10::CachingAllocator::Stat of_all(const c10::CachingAllocator::StatArray& by_pool) {
    return by_pool[static_cast<size_t>(Pool::AGGREGATE)];
  }

  static Board board(int device) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }

  c10::cuda::CUDAStream stream_of(Way way, c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);  // the backward pass has a thread of its own
    const auto found = streams_.find({way, device});
    if (found != streams_.end()) return found->second;
    const auto fresh = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device);
    return streams_.emplace(std::pair(way, device), fresh).first->second;
  }

  std::mutex mutex_;
  std::map<std::pair<Way, c10::DeviceIndex>, c10::cuda::CUDAStream> streams_;
  MemoryListener* listener_ = nullptr;
};

}  // namespace
}  // namespace braid::cuda

extern "C" __attribute__((visibility("default"))) braid::Accelerator* braid_cuda_accelerator() {
  static braid::cuda::CudaAccelerator accelerator;
  return &accelerator;
}
