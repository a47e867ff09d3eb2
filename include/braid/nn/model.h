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

#include "braid/core/blocks.h"
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
  int64_t first_sample = 0;       // index of the batch's first sample within the global batch
  BlockRunner* blocks = nullptr;  // stands around each of Model::blocks(); null: nobody
};

// How parameters are made.
struct Build {
  uint64_t seed = 0;
  Precision precision = {};
  c10::Device device = c10::kCPU;  // kMeta: counted, not allocated
  bool dry_params = false;         // parameters get no memory (ZeRO-3): whoever takes a piece of
                                   // one fills it by Model::initial()
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
  // Names of the parts that forward() runs through Pass::blocks, in order: "blocks.0", ...
  virtual std::vector<std::string> blocks() const { return {}; }
  // Initial values of elements first, first + 1, ... of a parameter, as many as `values` holds.
  virtual void initial(const std::string& param, const at::Tensor& values, int64_t first) const;
  virtual std::shared_ptr<torch::nn::Module> module()
      const;                     // for LibTorch programs; null if it is none
  double flops_forward() const;  // one sample
  int64_t parameters() const;
};

// The whole model as the outermost block: what a program calls where weights may be gathered.
at::Tensor run(Model& model, const at::Tensor& input, const Pass& pass);

}  // namespace braid::nn
