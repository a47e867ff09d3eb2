// SPDX-License-Identifier: BSD-3-Clause
// What the rest of braid asks of a GPU, without linking to CUDA. libbraid_cuda brings the
// implementation and is opened at start when it is there and a GPU is visible; else `accelerator()`
// is null and everything runs on the CPU.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace braid {

// An event on a device's stream.
class Moment {
 public:
  virtual ~Moment() = default;
  virtual void host_wait() = 0;    // the host waits until the work before it is done
  virtual void stream_wait() = 0;  // the current stream waits, the host goes on
};

// Told of every allocation on a device and of page-locked host memory, on the thread that makes it.
class MemoryListener {
 public:
  virtual ~MemoryListener() = default;
  virtual void taken(const void* address, int64_t bytes, int device) = 0;  // as asked for
  virtual void taken_pinned(const void* address, int64_t bytes) = 0;
  virtual void freed(const void* address) = 0;
};

// What the caching allocator of a device holds, bytes.
struct DeviceMemory {
  int64_t allocated = 0, reserved = 0;
  int64_t largest_free = 0;  // block of what is reserved and not allocated
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual int count() const = 0;
  virtual std::string name(int device) const = 0;
  virtual int capability(int device) const = 0;  // 90: sm_90
  virtual int64_t total_bytes(int device) const = 0;
  virtual int64_t free_bytes(int device) const = 0;
  virtual int64_t peak_allocated(int device) const = 0;  // since the last reset
  virtual int64_t requested(int device) const = 0;       // allocated now, before rounding up
  virtual int64_t peak_requested(int device) const = 0;
  virtual int64_t peak_reserved(int device) const = 0;
  virtual DeviceMemory memory(int device) const = 0;
  virtual void limit_memory(int device, int64_t bytes) = 0;  // beyond, allocations fail
  virtual void reset_peak(int device) = 0;
  virtual void listen_to_memory(MemoryListener* listener) = 0;  // once, for good
  virtual void synchronize(int device) = 0;
  virtual void allow_tf32(bool on) = 0;
  // 16-bit matrix products by the fastest algorithm for each shape, timed at its first use. Off:
  // torch's choice, the same in every run.
  virtual void tune_products(bool on) = 0;
  virtual at::Tensor pinned_like(
      const at::Tensor& host) = 0;  // page-locked memory of the same shape
  // Copies page-locked host memory to the device on a stream of its own.
  virtual at::Tensor copy_async(const at::Tensor& host, int device,
                                std::unique_ptr<Moment>& done) = 0;
  // Copies between page-locked host memory and the device, either way, on a stream of its own that
  // first waits for what the current stream was given. Both tensors stay until the moment.
  virtual std::unique_ptr<Moment> copy_beside(const at::Tensor& to, const at::Tensor& from) = 0;
};

struct AcceleratorStatus {
  Accelerator* device = nullptr;
  std::string reason;  // why there is none: "no GPU is visible", "libbraid_cuda.so is not beside
                       // libbraid.so", ...
};

// Opens libtorch_cuda and libbraid_cuda at the first call.
const AcceleratorStatus& accelerator_status();
inline Accelerator* accelerator() { return accelerator_status().device; }

}  // namespace braid
