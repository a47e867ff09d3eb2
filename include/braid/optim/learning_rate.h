// SPDX-License-Identifier: BSD-3-Clause
// The learning rate of one update: a number that the host knows, or a scalar on the device, which a
// captured step (CUDA graph) reads anew at each replay.
//
//   optimizer.step(3e-4);
//   optimizer.step(optim::LearningRate(scalar));   // fp64, on the device of the parameters
//   scalar.fill_(2.9e-4);                          // before the next replay: no host read
#pragma once
#include <utility>

#include <ATen/core/Tensor.h>

namespace braid::optim {

class LearningRate {
 public:
  LearningRate(double number) : number_(number) {}  // NOLINT(google-explicit-constructor)
  explicit LearningRate(at::Tensor scalar) : scalar_(std::move(scalar)) {}

  bool on_device() const { return scalar_.defined(); }
  double number() const { return number_; }             // of the host
  const at::Tensor& scalar() const { return scalar_; }  // undefined: the host has it

 private:
  double number_ = 0;
  at::Tensor scalar_;
};

}  // namespace braid::optim
