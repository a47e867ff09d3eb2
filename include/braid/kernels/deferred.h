// SPDX-License-Identifier: BSD-3-Clause
// A linear layer whose backward pass gives the gradient of its input now and that of its weights
// when asked: pipelines fill their bubbles with the second half.
//
//   later->open(micro);                              // what is recorded now belongs to this key
//   y = kernels::linear(x, weight, bias, later);
//   y.backward(gradient);                            // x.grad() is there, weight.grad() is not
//   later->run(micro);                               // now it is, and hooks on it have run
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

// A gradient to be computed later, and the tensor it is of: a parameter, or what was made of one (a
// cast, a view).
struct LaterGradient {
  at::Tensor of;
  std::function<at::Tensor()> compute;
  uint64_t place = 0;  // of its operation in the forward pass, as autograd counts them
};

// For LaterGradient::of: the way from a weight to its parameter, without the memory of what was
// made of one, so that nothing is kept that can be made again. Undefined if no gradient is wanted.
at::Tensor gradient_place(const at::Tensor& weight);

class Deferred {
 public:
  void open(int64_t key);  // forward passes from now on belong to it
  int64_t key() const;
  bool active() const;  // off: gradients of weights come with those of the input
  void set_active(bool on);
  void add(int64_t key, std::function<void()> work);  // by the backward pass, from any thread
  void add(int64_t key, LaterGradient gradient);
  // The works in the order in which they were added, then the gradients in that of a backward pass:
  // one pass of autograd takes all of them to the parameters, so that each is added to, and its
  // hooks run, once.
  void run(int64_t key);
  size_t waiting() const;  // pieces of work of all keys
  void clear();            // forgets what waits: after an error

 private:
  struct Waiting {
    std::vector<std::function<void()>> work;
    std::vector<LaterGradient> gradients;
  };
  mutable std::mutex mutex_;
  int64_t key_ = 0;
  bool active_ = false;
  std::map<int64_t, Waiting> waiting_;
};

// x W^T + b. `later` null or not active: kernels::linears. x: [..., in], weight [out, in], bias
// [out] or undefined; values and gradients are the same to the bit.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const std::shared_ptr<Deferred>& later);

}  // namespace braid::kernels
