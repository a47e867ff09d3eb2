// SPDX-License-Identifier: BSD-3-Clause
// Every operator of a step as the device sees it: name, shapes, dtypes, module, FLOPs, bytes moved.
//
//   memory::OperatorLog log;
//   { const memory::Instruments on({.log = &log, .dry = true}); step.run(batch, pass, lr); }
//   double flops = log.flops();
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::memory {

struct TensorShape {
  std::vector<int64_t> sizes;
  c10::ScalarType dtype = c10::kFloat;
  int64_t bytes() const;  // of its elements, each counted once
  bool operator==(const TensorShape&) const = default;
};

enum class RunsOn : uint8_t {
  device,  // that of its tensors
  host,    // all of them are on the host
  to_host,
  to_device
};

struct Operator {
  std::string name;  // aten::addmm
  std::vector<TensorShape> inputs, outputs;
  std::string module;  // in the backward pass: the one whose forward pass made the node
  bool backward = false;
  bool recomputed = false;  // computed again, within the backward pass
  double flops = 0;         // of matrix products, convolutions and attention: 2 for a multiply-add
  int64_t bytes = 0;        // read and written, each tensor once; 0 for views
  int64_t scratch = 0;      // taken beside its results; counted with a ledger only
  RunsOn on = RunsOn::device;  // single numbers beside tensors do not count
  bool causal = false;         // attention that skips half of its scores
  uint32_t strided = 0;  // bit i: elements of input i do not lie in the order of its dimensions
};

class OperatorLog {
 public:
  void add(Operator op) { operators_.push_back(std::move(op)); }
  const std::vector<Operator>& operators() const { return operators_; }
  double flops() const;
  int64_t bytes() const;
  void clear() { operators_.clear(); }

 private:
  std::vector<Operator> operators_;
};

// What an operator costs beyond shapes: filled from its arguments by name.
struct OperatorCall {
  std::string_view name;
  const std::vector<TensorShape>& inputs;
  const std::vector<TensorShape>& outputs;
  std::vector<bool> wanted = {};  // backward of a convolution: gradients of input, weight, bias
  bool transposed = false;        // convolution
};

// FLOPs of one call. Conventions of the field: a multiply-add is 2; attention counts whole score
// matrices also under a causal mask, its backward pass twice the forward (what a kernel computes
// again is not counted); elementwise operators, norms and reductions count 0.
double flops_of(const OperatorCall& call);

}  // namespace braid::memory
