// SPDX-License-Identifier: BSD-3-Clause
// Threads that fill batches sample by sample. Internal to the loader.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "braid/data/loader.h"
#include "data/buffers.h"
#include "data/order.h"

namespace braid::data {

// A batch on its way from the files to the caller.
struct BatchJob {
  BatchPlan plan;
  std::shared_ptr<HostBatch> host;
  std::vector<int64_t> weights;
  at::Tensor device_input, device_target;  // once sent
  // Guarded by the readers' mutex:
  int64_t claimed = 0, finished = 0;
  int64_t failed_at = -1;  // the first sample that could not be read
  std::exception_ptr error;
  bool ready = false;

  int64_t count() const { return static_cast<int64_t>(plan.samples.size()); }
};

class Readers {
 public:
  Readers(std::shared_ptr<const Source> source, const LoaderOptions& options);
  ~Readers();  // lets the samples being read finish, then joins
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  void start(std::shared_ptr<BatchJob> job);  // without threads it is read here
  void wait(BatchJob& job);                   // rethrows the error of its first bad sample
  bool ready(const BatchJob& job);            // wait() would not wait
  void forget();                              // jobs not yet begun

 private:
  void end();
  void work();
  void run(BatchJob& job, int64_t first, int64_t end);
  void read_sample(BatchJob& job, int64_t k) const;
  void check_finite(const at::Tensor& values, const char* part, int64_t index) const;

  std::shared_ptr<const Source> source_;
  LoaderOptions options_;
  std::mutex mutex_;
  std::condition_variable work_there_, job_ready_;
  std::deque<std::shared_ptr<BatchJob>> jobs_;  // with samples that nobody has claimed
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace braid::data
