// SPDX-License-Identifier: BSD-3-Clause
// One NCCL communicator with a stream of its own. Calls return at once; a watch ends the
// communicator when a call takes too long or NCCL reports an error.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/plugin.h"

namespace braid::cuda {

// A point on a stream.
class NcclEvent {
 public:
  NcclEvent();
  ~NcclEvent();
  NcclEvent(const NcclEvent&) = delete;
  NcclEvent& operator=(const NcclEvent&) = delete;
  void record(cudaStream_t stream);
  void hold_back(cudaStream_t stream) const;  // what comes next on the stream waits for the point
  bool over() const;

 private:
  cudaEvent_t event_ = nullptr;
};
using NcclPoint = std::shared_ptr<NcclEvent>;

class NcclLine {
 public:
  // Meets the other ranks at `key` of the store.
  NcclLine(const comm::NcclPlace& place, const std::string& key, int rank, int size);
  ~NcclLine();
  NcclLine(const NcclLine&) = delete;
  NcclLine& operator=(const NcclLine&) = delete;

  // Runs `body` on the own stream after `begin`, between ncclGroupStart and ncclGroupEnd. The
  // tensors are in use until the point that it gives.
  using Body = std::function<void(ncclComm_t, cudaStream_t)>;
  NcclPoint run(const NcclEvent& begin, const std::vector<at::Tensor>& tensors, const Body& body);
  void check() const;                    // throws what broke the line
  void fail(const std::string& reason);  // ends what is under way, here and then on the peers

 private:
  struct Flight {
    NcclPoint end;
    std::chrono::steady_clock::time_point begin;
  };
  void connect(const comm::NcclPlace& place, const std::string& key, int rank, int size);
  void settle(const char* what) const;  // NCCL answers "in progress" before it answers
  void watch();
  std::string trouble();

  double timeout_seconds_;
  int device_;
  c10::cuda::CUDAStream stream_;
  ncclComm_t comm_ = nullptr;
  std::mutex calls_;          // one NCCL call at a time
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable stopped_;
  std::deque<Flight> flights_;
  std::string failure_;
  bool stop_ = false;
  std::atomic<bool> broken_ = false;
  std::thread watcher_;
};

void nccl_must(ncclResult_t result, ncclComm_t comm, const char* what);  // in progress is well
ncclDataType_t nccl_type(c10::ScalarType dtype);  // of a reduction; throws if NCCL has none
ncclRedOp_t nccl_op(comm::Op op);

}  // namespace braid::cuda
