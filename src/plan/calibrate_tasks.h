// SPDX-License-Identifier: BSD-3-Clause
// The operators that are timed, with the tensors they work on.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plan/cost_class.h"

namespace braid::plan {

// Tensors of a device without a kernel to make each: pieces of one long row of values in [-1, 1],
// which draw as much power as those of a model do.
class Pool {
 public:
  Pool(c10::Device device, int64_t bytes);
  at::Tensor take(at::IntArrayRef sizes, c10::ScalarType dtype);  // the next piece, from the start
  void begin() { next_ = 0; }                                     // again after the last
  int64_t room(c10::ScalarType dtype) const;                      // elements
  c10::Device device() const { return device_; }

 private:
  at::Tensor& flat(c10::ScalarType dtype);
  c10::Device device_;
  int64_t bytes_;
  int64_t next_ = 0;  // byte
  std::map<c10::ScalarType, at::Tensor> flat_;
};

// One operator at one size. Made just before it is timed.
struct Task {
  Work work = Work::pointwise;
  std::string name = {};  // of the kernel, as --only picks it
  c10::ScalarType dtype = c10::kFloat;
  bool tf32 = false;
  double flops = 0, bytes = 0;  // to leave out what takes too long or does not fit
  std::function<std::function<void()>(Pool&)> prepare = {};
};

struct TaskOptions {
  std::vector<std::string> dtypes;
  bool small = false;
  bool gpu = true;
};
void add_product_tasks(const TaskOptions& options, std::vector<Task>& tasks);
void add_attention_tasks(const TaskOptions& options, std::vector<Task>& tasks);
void add_row_tasks(const TaskOptions& options, std::vector<Task>& tasks);
void add_stream_tasks(const TaskOptions& options, std::vector<Task>& tasks);
void add_norm_tasks(const TaskOptions& options, std::vector<Task>& tasks);
void add_own_tasks(const TaskOptions& options, std::vector<Task>& tasks);

// Several copies of a task's tensors, used in turn: none of them is still in the cache when its
// turn comes, as in a step, where other tensors come between.
std::function<void()> in_turn(Pool& pool, double bytes,
                              const std::function<std::function<void()>()>& make);

// bf16, fp16, fp32, tf32, fp64
c10::ScalarType task_dtype(const std::string& name);

}  // namespace braid::plan
