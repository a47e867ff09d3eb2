// SPDX-License-Identifier: BSD-3-Clause
// What the trainer needs of a model: parameters by name and a forward pass. The models of braid are
// torch::nn::Modules behind it.
//
//   auto model = nn::make_model(options, {.seed = 1, .precision = precision("bf16")});
//   at::Tensor output = model->forward(input, {.training = true, .seed = 1, .step = 7});
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/param.h"
#include "braid/core/precision.h"

namespace torch::nn {
class Module;
}
namespace braid::nn {

// What a forward pass depends on beside input and weights. Dropout masks are f(seed, step, layer,
// global position).
struct Pass {
  bool training = false;
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sample = 0;  // index of the batch's first sample within the global batch
};

// How parameters are made.
struct Build {
  uint64_t seed = 0;
  Precision precision = {};
  c10::Device device = c10::kCPU;  // kMeta: counted, not allocated
};

struct LayerRow {
  std::string name;             // blocks.0.attn.q
  std::string kind;             // Linear 384 -> 384
  std::vector<int64_t> output;  // shape, batch 1
  int64_t parameters = 0;       // own, without children
  double flops = 0;             // forward, one sample, 2 a multiply-add
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const std::string& name() const = 0;
  virtual std::vector<Param> params() const = 0;  // in registration order
  virtual at::Tensor forward(const at::Tensor& input, const Pass& pass) = 0;
  virtual std::vector<LayerRow> layers() const = 0;  // for the sizes in the options
  virtual std::shared_ptr<torch::nn::Module> module()
      const;                     // for LibTorch programs; null if it is none
  double flops_forward() const;  // one sample
  int64_t parameters() const;
};

}  // namespace braid::nn
