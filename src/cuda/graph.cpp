// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/graph.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <utility>

namespace braid::cuda {
namespace {

namespace Allocator = c10::cuda::CUDACachingAllocator;

// `later` goes on when `first` has done what it was given so far.
void order_streams(const c10::cuda::CUDAStream& first, const c10::cuda::CUDAStream& later) {
  at::cuda::CUDAEvent event;
  event.record(first);
  event.block(later);
}

struct PoolPlace {
  c10::DeviceIndex device;
  c10::MempoolId_t id;
  c10::cuda::CUDAStream stream;
};

// What the pool's stream allocates comes from the pool, on autograd's threads, too.
class PoolMemory {
 public:
  explicit PoolMemory(const PoolPlace& place) : place_(place) {
    Allocator::beginAllocateToPool(
        place.device, place.id,
        [stream = place.stream.stream()](cudaStream_t asking) { return asking == stream; });
  }
  ~PoolMemory() {
    Allocator::endAllocateToPool(place_.device, place_.id);
    Allocator::releasePool(place_.device, place_.id);
  }
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

 private:
  const PoolPlace& place_;
};

class CudaCaptured final : public Captured {
 public:
  void replay() override { graph_.replay(); }

  // Loader threads go on meanwhile: only this thread keeps from what a capture forbids.
  void record(const PoolPlace& place, const std::function<void()>& work) {
    graph_.capture_begin(place.id, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      give_up(place);
      throw;
    }
    try {
      graph_.capture_end();
    } catch (...) {
      end_memory(place);
      throw;
    }
  }

 private:
  void give_up(const PoolPlace& place) {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {  // the capture is broken: what broke it is told
      end_memory(place);
    }
  }

  // Both allocators ask this graph where to take memory: they must forget it.
  static void end_memory(const PoolPlace& place) {
    (void)cudaGetLastError();
    const auto unless_ended = [](const std::function<void()>& end) {
      try {
        end();
      } catch (const std::exception&) {  // it had ended
      }
    };
    unless_ended([&] {
      Allocator::endAllocateToPool(place.device, place.id);
      Allocator::releasePool(place.device, place.id);
    });
    unless_ended([&] {
      at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(place.id);
      at::getHostAllocator(at::kCUDA)->release_pool(place.id);
    });
  }

  at::cuda::CUDAGraph graph_;
};

class CudaCapturePool final : public CapturePool {
 public:
  explicit CudaCapturePool(c10::DeviceIndex device)
      : place_{device, at::cuda::graph_pool_handle(),
               c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device)} {
    Allocator::emptyCache();  // what was cached so far cannot be used in the pool
    Allocator::createOrIncrefPool(device, place_.id);
    // The same for page-locked memory, which has no other way: a pool that nobody holds cannot be
    // captured into again.
    at::getHostAllocator(at::kCUDA)->begin_allocate_to_pool(place_.id,
                                                            [](c10::Stream) { return false; });
    at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(place_.id);
  }
  ~CudaCapturePool() override {
    Allocator::releasePool(place_.device, place_.id);
    at::getHostAllocator(at::kCUDA)->release_pool(place_.id);
  }
  CudaCapturePool(const CudaCapturePool&) = delete;
  CudaCapturePool& operator=(const CudaCapturePool&) = delete;

  void run(const std::function<void()>& work) override {
    const c10::cuda::CUDAStream around = c10::cuda::getCurrentCUDAStream(place_.device);
    if (around == place_.stream) return work();  // already there
    order_streams(around, place_.stream);
    {
      const c10::cuda::CUDAStreamGuard guard(place_.stream);
      const PoolMemory memory(place_);
      work();
    }
    order_streams(place_.stream, around);
  }

  std::unique_ptr<Captured> capture(const std::function<void()>& work) override {
    const c10::cuda::CUDAStream around = c10::cuda::getCurrentCUDAStream(place_.device);
    auto captured = std::make_unique<CudaCaptured>();
    order_streams(around, place_.stream);
    const c10::cuda::CUDAStreamGuard guard(place_.stream);
    captured->record(place_, work);
    return captured;
  }

 private:
  PoolPlace place_;
};

}  // namespace

std::unique_ptr<CapturePool> make_capture_pool(int device) {
  return std::make_unique<CudaCapturePool>(static_cast<c10::DeviceIndex>(device));
}

}  // namespace braid::cuda
