// SPDX-License-Identifier: BSD-3-Clause
#include "memory/dry_storage.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>

#include <memory>
#include <mutex>

#include "braid/core/dry.h"
#include "braid/core/error.h"
#include "memory/recorder.h"

namespace braid::memory {
namespace {

struct MetaMemory {
  BlockPtr block;                     // null: not counted
  c10::StorageImpl* owner = nullptr;  // the dry storage in front
};

class WatchedMeta final : public c10::Allocator {
 public:
  static void free(void* context) {
    auto* memory = static_cast<MetaMemory*>(context);
    free_block(memory->block);
    delete memory;
  }

  c10::DataPtr allocate(size_t bytes) override {
    Recorder* recording = dry_device() ? recorder() : nullptr;
    auto memory = std::make_unique<MetaMemory>();
    if (recording != nullptr) memory->block = recording->take_dry(static_cast<int64_t>(bytes));
    return {nullptr, memory.release(), &free, c10::Device(c10::kMeta)};
  }

  void copy_data(void*, const void*, size_t) const override {}
};

struct Twin {
  c10::Storage meta;
};

MetaMemory* memory_of(const c10::Storage& meta) {
  return meta.data_ptr().cast_context<MetaMemory>(&WatchedMeta::free);
}

void drop_twin(void* context) {
  auto* twin = static_cast<Twin*>(context);
  if (MetaMemory* memory = memory_of(twin->meta)) memory->owner = nullptr;
  delete twin;
}

Twin* twin_of(const c10::Storage& dry) {
  return dry.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().cast_context<Twin>(&drop_twin);
}

// resize_ on meta changes the size of a storage without asking its allocator.
void settle(const c10::Storage& meta) {
  MetaMemory* memory = memory_of(meta);
  if (memory == nullptr || memory->block == nullptr) return;
  if (const auto ledger = memory->block->ledger.lock())
    ledger->resize(memory->block, static_cast<int64_t>(meta.nbytes()));
}

c10::DispatchKeySet dry_keys(c10::Device device) {
  const auto backend = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  return c10::DispatchKeySet({c10::DispatchKey::Fake, backend});
}

}  // namespace

at::Tensor view_of(c10::Storage storage, c10::DispatchKeySet keys, const at::Tensor& like) {
  at::Tensor view =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  c10::TensorImpl* impl = view.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return view;
}

void watch_meta_memory() {
  static std::once_flag once;
  std::call_once(once, [] { c10::SetAllocator(c10::kMeta, new WatchedMeta, /*priority=*/255); });
}

at::Tensor to_meta(const at::Tensor& dry) {
  Twin* twin = twin_of(dry.storage());
  if (twin == nullptr)
    throw InternalError({.what = "a released dry tensor is used",
                         .why = "its memory was given back (ZeRO-3) and not taken again",
                         .fix = "gather the parameter before the operator runs"});
  return view_of(twin->meta, c10::DispatchKeySet(c10::DispatchKey::Meta), dry);
}

at::Tensor meta_of_real(const at::Tensor& real) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), real.storage().nbytes(),
                       c10::DataPtr(nullptr, c10::Device(c10::kMeta)), nullptr, false);
  return view_of(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::Meta), real);
}

at::Tensor to_dry(const at::Tensor& meta, c10::Device device) {
  settle(meta.storage());
  MetaMemory* memory = memory_of(meta.storage());
  const size_t bytes = meta.storage().nbytes();
  c10::Storage storage;
  if (memory != nullptr && memory->owner != nullptr) {
    memory->owner->set_nbytes(bytes);
    storage = c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(memory->owner));
  } else {
    c10::DataPtr nothing(nullptr, new Twin{meta.storage()}, &drop_twin, device);
    storage =
        c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(nothing), nullptr, false);
    if (memory != nullptr) memory->owner = storage.unsafeGetStorageImpl();
  }
  return view_of(std::move(storage), dry_keys(device), meta);
}

void follow(const at::Tensor& meta, const at::Tensor& dry) {
  if (meta.sizes() != dry.sizes() || meta.strides() != dry.strides() ||
      meta.storage_offset() != dry.storage_offset())
    dry.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides(),
                                                     meta.storage_offset());
  settle(meta.storage());
  dry.storage().unsafeGetStorageImpl()->set_nbytes(meta.storage().nbytes());
}

BlockPtr dry_block(const c10::Storage& dry) {
  const Twin* twin = twin_of(dry);
  if (twin == nullptr) return nullptr;
  const MetaMemory* memory = memory_of(twin->meta);
  return memory == nullptr ? nullptr : memory->block;
}

void materialize(const at::Tensor& dry, const at::Tensor& data) {
  if (!is_dry(dry))
    throw InternalError({.what = "materialize: the tensor is not dry",
                         .why = "it has data already, which would be lost",
                         .fix = "assign with copy_ instead"});
  dry.set_data(data);
}

void release(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(size_t{0});
}

void acquire(const at::Tensor& tensor, int64_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const at::Tensor fresh =
      at::empty({bytes}, tensor.options().dtype(c10::kByte).requires_grad(false));
  c10::DataPtr memory =
      std::move(fresh.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  if (is_dry(tensor)) memory_of(memory.cast_context<Twin>(&drop_twin)->meta)->owner = storage;
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(static_cast<size_t>(bytes));
}

}  // namespace braid::memory
