// SPDX-License-Identifier: BSD-3-Clause
#include "memory/dry_cuda.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <mutex>

#include "braid/core/accelerator.h"

namespace braid::memory {
namespace {

std::atomic<int> pretending = 0;

const c10::Device& first_gpu() {
  static const c10::Device device(c10::kCUDA, 0);
  return device;
}

class DryCudaGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return first_gpu(); }
  c10::Device getDevice() const override { return first_gpu(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, first_gpu());
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  // Always: autograd makes its queues, one a device, at the first backward pass of the process, and
  // a dry run may come after it.
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

class DryCudaHooks final : public at::CUDAHooksInterface {
 public:
  explicit DryCudaHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return pretending > 0; }
  bool isBuilt() const override { return pretending > 0; }
  bool isAvailable() const override { return pretending > 0; }
  int getNumGPUs() const override { return pretending > 0 ? 1 : 0; }
  c10::DeviceIndex deviceCount() const override { return pretending > 0 ? 1 : 0; }
  c10::DeviceIndex current_device() const override { return pretending > 0 ? 0 : -1; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return pretending > 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
};

// Registered before anybody asks for the hooks, which torch asks for once and keeps. The real ones
// of libtorch_cuda have a higher priority and take their place.
const bool hooks_registered = [] {
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks",
      [](at::CUDAHooksArgs arguments) -> std::unique_ptr<at::CUDAHooksInterface> {
        return std::make_unique<DryCudaHooks>(arguments);
      },
      c10::REGISTRY_FALLBACK);
  return true;
}();

void no_cuda_kernel(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, "no CUDA kernel of ", op.schema().name(), " in a process without CUDA");
}

// Operators that have a kernel of their own on CUDA and a decomposition elsewhere: without an entry
// for CUDA, autograd would decompose them in the dry run and count the wrong bytes.
void name_fused_operators() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__,
                                __LINE__);
  for (const char* name :
       {"silu_backward", "mish_backward", "_fused_rms_norm", "_fused_rms_norm_backward"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&no_cuda_kernel>());
}

// Also from the start; that of libtorch_cuda takes its place.
const bool guard_installed = [] {
  static const DryCudaGuard guard;
  const c10::impl::DeviceGuardImplInterface* none = nullptr;
  return c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)]
      .compare_exchange_strong(none, &guard);
}();

}  // namespace

PretendCuda::PretendCuda() : pretends_(accelerator() == nullptr) {
  if (!pretends_) return;
  static std::once_flag once;
  std::call_once(once, name_fused_operators);
  ++pretending;
}

PretendCuda::~PretendCuda() {
  if (pretends_) --pretending;
}

}  // namespace braid::memory
