// SPDX-License-Identifier: BSD-3-Clause
// Storages without memory. A dry tensor owns a storage with the keys of its device; behind it
// stands a meta storage that the Meta kernels work on. One meta storage has one dry storage, so
// that views stay views.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "memory/block.h"

namespace braid::memory {

// From the first call on, meta storages tell the ledger of the dry run they are made in.
void watch_meta_memory();

// A tensor over the storage, for kernels of the keys, with sizes and strides of another one.
at::Tensor view_of(c10::Storage storage, c10::DispatchKeySet keys, const at::Tensor& like);
at::Tensor to_meta(const at::Tensor& dry);        // same sizes, strides and memory
at::Tensor meta_of_real(const at::Tensor& real);  // same sizes and strides, no memory, not counted
at::Tensor to_dry(const at::Tensor& meta, c10::Device device);
// Takes over what an in-place operator (t_(), resize_()) did to the meta tensor.
void follow(const at::Tensor& meta, const at::Tensor& dry);
BlockPtr dry_block(const c10::Storage& dry);

}  // namespace braid::memory
