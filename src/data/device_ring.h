// SPDX-License-Identifier: BSD-3-Clause
// The batches on a GPU: two, used in turn. While the step reads one, a copy stream fills the other,
// as soon as the step that read it before is done. Internal to the loader.
//
//   ring.send(job);            // copies on a stream of its own, and finishes the values there
//   batch.input = job.device_input; ring.wait(job);   // the current stream waits, not the host
//   ring.release();            // all that reads the batch before was given to the current stream
#pragma once
#include <array>
#include <memory>

#include "braid/core/accelerator.h"
#include "braid/data/source.h"
#include "data/readers.h"

namespace braid::data {

class DeviceRing {
 public:
  static constexpr size_t batches = 2;

  DeviceRing(const Source& source, int64_t largest, int device);
  ~DeviceRing();
  DeviceRing(const DeviceRing&) = delete;
  DeviceRing& operator=(const DeviceRing&) = delete;

  void wait_for_room();      // the host waits until the next batch has a place
  void send(BatchJob& job);  // once a batch, in their order; its samples are read
  void release();            // before the next but one is sent

 private:
  struct Slot {
    at::Tensor input, target;
    std::unique_ptr<Moment> released;  // null: nobody has read it
    std::unique_ptr<Moment> filled;
  };
  at::Tensor make(const TensorSpec& spec) const;
  void own(Slot& slot) const;  // other memory if a caller still holds it
  void finish(const at::Tensor& values) const;

  SampleSpec spec_;
  int64_t largest_;
  int device_;
  at::Tensor mean_, std_;  // [C, 1, ...]; undefined: values are as they should be
  std::array<Slot, batches> slots_;
  size_t next_ = 0;  // slot of the batch that is sent next
};

}  // namespace braid::data
