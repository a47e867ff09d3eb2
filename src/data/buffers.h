// SPDX-License-Identifier: BSD-3-Clause
// Memory of batches, used again once nobody holds it, page-locked where a GPU is to read it.
// Internal.
#pragma once
#include <memory>
#include <vector>

#include "braid/core/accelerator.h"
#include "braid/data/source.h"

namespace braid::data {

struct HostBatch {
  at::Tensor input, target;        // [largest local batch, ...]
  std::unique_ptr<Moment> copied;  // to the device: the memory is busy until then
};

class BufferPool {
 public:
  BufferPool(SampleSpec spec, int64_t batch, Accelerator* pin);  // pin: null for pageable memory

  // A batch that only the pool holds; a new one if callers hold all others.
  std::shared_ptr<HostBatch> take();
  int64_t allocated() const { return allocated_; }

 private:
  at::Tensor make(const TensorSpec& spec) const;

  SampleSpec spec_;
  int64_t batch_;
  Accelerator* pin_;
  int64_t allocated_ = 0;
  std::vector<std::shared_ptr<HostBatch>> batches_;
};

}  // namespace braid::data
