// SPDX-License-Identifier: BSD-3-Clause
// A CUDA device whose memory is that of the host: an operator of torch on its tensors runs on the
// CPU, over the same bytes. Operators of braid have their CUDA kernels, which run by block.h.
// Memory that nobody has written yet holds no numbers.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "memory/dry_cuda.h"
#include "memory/dry_storage.h"

namespace braid::emulated {
namespace {

using Stack = torch::jit::Stack;

const c10::Device& gpu() {
  static const c10::Device device(c10::kCUDA, 0);
  return device;
}

struct Twin {
  c10::Storage host;  // the memory
};
void drop_twin(void* twin) { delete static_cast<Twin*>(twin); }

Twin* twin_of(const c10::Storage& storage) {
  return storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().cast_context<Twin>(
      &drop_twin);
}

c10::DataPtr memory_of(const c10::Storage& host) {
  return {host.mutable_data(), new Twin{host}, &drop_twin, gpu()};
}

at::Tensor view_of(const c10::Storage& storage, c10::DispatchKey backend, const at::Tensor& like) {
  return memory::view_of(storage, c10::DispatchKeySet(backend), like);
}

// One call of an operator on the host.
class HostCall {
 public:
  at::Tensor to_host(const at::Tensor& there) {
    if (!there.defined() || !there.is_cuda()) return there;
    for (const Pair& pair : pairs_)
      if (pair.there.is_same(there)) return pair.host;
    const Twin* twin = twin_of(there.storage());
    TORCH_CHECK(twin != nullptr, "emulated device: a tensor with memory from elsewhere");
    pairs_.push_back({there, view_of(twin->host, c10::DispatchKey::CPU, there)});
    return pairs_.back().host;
  }

  at::Tensor to_device(const at::Tensor& host) const {
    if (!host.defined()) return host;
    for (const Pair& pair : pairs_)
      if (pair.host.is_same(host)) return pair.there;
    for (const at::Tensor& given : given_)
      if (given.is_same(host)) return host;
    for (const Pair& pair : pairs_)
      if (pair.host.storage().is_alias_of(host.storage()))
        return view_of(pair.there.storage(), c10::DispatchKey::CUDA, host);
    const c10::Storage storage(c10::Storage::use_byte_size_t(), host.storage().nbytes(),
                               memory_of(host.storage()), nullptr, false);
    return view_of(storage, c10::DispatchKey::CUDA, host);
  }

  void convert_argument(c10::IValue& value) {
    if (value.isTensor()) {
      if (value.toTensor().defined() && !value.toTensor().is_cuda())
        given_.push_back(value.toTensor());
      value = to_host(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> all;
      for (const at::Tensor& each : value.toTensorVector()) all.push_back(to_host(each));
      value = all;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> all;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector())
        all.push_back(each ? std::optional(to_host(*each)) : std::nullopt);
      value = all;
    } else if (value.isDevice()) {
      value = c10::Device(c10::kCPU);
    }
  }

  void convert_result(c10::IValue& value) const {
    if (value.isTensor()) {
      value = to_device(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> all;
      for (const at::Tensor& each : value.toTensorVector()) all.push_back(to_device(each));
      value = all;
    }
  }

  // An operator may give a tensor of its arguments other sizes, and other memory.
  void settle() const {
    for (const auto& [there, host] : pairs_) {
      if (there.sizes() != host.sizes() || there.strides() != host.strides() ||
          there.storage_offset() != host.storage_offset())
        there.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(),
                                                           host.storage_offset());
      c10::StorageImpl* storage = there.storage().unsafeGetStorageImpl();
      if (storage->data() == host.storage().data()) continue;
      storage->set_data_ptr_noswap(memory_of(host.storage()));
      storage->set_nbytes(host.storage().nbytes());
    }
  }

 private:
  struct Pair {
    at::Tensor there, host;
  };
  std::vector<Pair> pairs_;
  std::vector<at::Tensor> given_;  // arguments on the host
};

void spoil(const at::Tensor& fresh) {
  if (fresh.storage().nbytes() == 0) return;
  const int byte = fresh.scalar_type() == c10::kBool ? 1 : 0xff;
  std::memset(fresh.storage().mutable_data(), byte, fresh.storage().nbytes());
}

void run_on_host(const c10::OperatorHandle& op, Stack* stack) {
  const size_t arguments = op.schema().arguments().size(), first = stack->size() - arguments;
  HostCall call;
  for (size_t i = first; i < stack->size(); ++i) call.convert_argument((*stack)[i]);
  {
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    op.callBoxed(stack);
  }
  call.settle();
  const std::string_view name = op.schema().name();
  const bool empty = name == "aten::empty" || name == "aten::empty_strided";
  for (size_t i = first; i < stack->size(); ++i) {
    if (empty) spoil((*stack)[i].toTensor());
    call.convert_result((*stack)[i]);
  }
}

const memory::PretendCuda torch_finds_a_gpu;

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

// Only CUDA has them.
at::Tensor mm_to(const at::Tensor& a, const at::Tensor& b, c10::ScalarType dtype) {
  return at::mm(a.to(dtype), b.to(dtype));
}
at::Tensor& mm_into(const at::Tensor& a, const at::Tensor& b, c10::ScalarType dtype,
                    at::Tensor& out) {
  return out.copy_(mm_to(a, b, dtype));
}
at::Tensor& addmm_into(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                       c10::ScalarType dtype, const at::Scalar& beta, const at::Scalar& alpha,
                       at::Tensor& out) {
  return out.copy_(mm_to(a, b, dtype).mul(alpha).add(c, beta));
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("mm.dtype", &mm_to);
  library.impl("mm.dtype_out", &mm_into);
  library.impl("addmm.dtype_out", &addmm_into);
  // One kernel for all devices, which looks for the device's part by itself.
  for (const char* name : {"copy_", "convolution", "convolution_backward"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

}  // namespace
}  // namespace braid::emulated
