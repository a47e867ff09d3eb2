// SPDX-License-Identifier: BSD-3-Clause
// Optimizers over named parameters of any LibTorch module: one pass over memory an update.
//
//   optim::Optimizer adamw(named_params(*model), {.lr = 3e-4, .weight_decay = 0.1});
//   loss.backward();
//   adamw.step();
//   adamw.zero_grad();
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"
#include "braid/core/options.h"
#include "braid/core/param.h"
#include "braid/core/state.h"
#include "braid/optim/learning_rate.h"

namespace braid::optim {

enum class Algorithm { sgd, adam, adamw };

struct OptimizerOptions {
  Algorithm name = Algorithm::adamw;
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};  // Adam
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;  // SGD
  bool nesterov = false;
  bool decay_matrices_only = false;  // no weight decay on tensors of fewer than two dimensions
};

void describe(Fields& fields, OptimizerOptions& options);

class Optimizer {
 public:
  using Updated = std::function<void(const Param&)>;

  // `master`: dtype that is updated; narrower parameters get a copy in it (bf16 weights, fp32
  // masters), made at the first step from the weights of that moment. A wider parameter is updated
  // as it is.
  Optimizer(std::vector<Param> params, OptimizerOptions options,
            c10::ScalarType master = c10::kFloat);
  ~Optimizer();
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  // One update of all parameters that have a gradient. `found_inf` (0 or 1) and `factor` are
  // scalars on the device or undefined: gradients are multiplied by factor (the inverse of a loss
  // scale, a clip_factor()), and nothing changes if found_inf is 1. No host read. The gradients may
  // be left as they are.
  // `updated` is told of each parameter as soon as its values are final, while others still wait.
  void step(const LearningRate& lr, const at::Tensor& found_inf = {}, const at::Tensor& factor = {},
            const Updated& updated = {});
  void step();       // with options().lr
  void zero_grad();  // releases the gradients
  const OptimizerOptions& options() const;
  const std::vector<Param>& params() const;

  // "<parameter>/exp_avg", "/exp_avg_sq", "/step" (Adam), "/momentum" (SGD), "/master"; shares
  // memory with the optimizer. Only of parameters that were updated at least once. Of a piece each
  // is the same piece, but "/step", a single number that all its owners have.
  State state() const;
  void load(const State& state);  // copies; throws StorageError if of another model or algorithm
  // State to be filled by whoever reads a checkpoint: of the parameters that `saved` has some of.
  State prepare(const State& saved);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The global L2 norm of all gradients, as a device scalar. No host read. Where the parameters are
// pieces, `owners` are the ranks that hold all of them together; what is Param::repeated is counted
// by the rank that it repeats.
at::Tensor grad_norm(const std::vector<Param>& params, const comm::Group& owners = {});

// What gradients of that norm are multiplied by so that it is at most `max_norm`. Given to step()
// as their factor, clipping costs no pass over the gradients.
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);

// Scales all gradients so that their norm is at most `max_norm` (0: only measures). Returns the
// norm before.
at::Tensor clip_grad_norm(const std::vector<Param>& params, double max_norm,
                          const comm::Group& owners = {});

// Multiplies all gradients by a device scalar.
void scale_grads(const std::vector<Param>& params, const at::Tensor& factor);

}  // namespace braid::optim
