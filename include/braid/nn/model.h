// SPDX-License-Identifier: BSD-3-Clause
// What the trainer needs of a model: parameters by name and a forward pass. The models of braid are
// torch::nn::Modules behind it.
//
//   auto model = nn::make_model(options, {.seed = 1, .precision = precision("bf16")});
//   at::Tensor output = model->forward(input, {.training = true, .seed = 1, .step = 7});
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/blocks.h"
#include "braid/core/param.h"
#include "braid/core/precision.h"
#include "braid/core/recompute.h"
#include "braid/nn/autocast.h"
#include "braid/nn/layout.h"
#include "braid/nn/loss.h"

namespace torch::nn {
class Module;
}
namespace braid::nn {

// What a forward pass gives beside its output. Extra losses (of routers) go into the gradient where
// they arise, so that each stage of a pipeline has its own.
struct Extras {
  double weight = 1;      // share of these samples in the batch; set before the backward pass
  int64_t samples = -1;   // those that count; padding stands behind them. -1: all
  at::Tensor scale = {};  // that the loss is multiplied by (fp16), if any
  std::map<std::string, at::Tensor> losses = {};  // by layer: sum over samples, detached
  std::map<std::string, at::Tensor> loads = {};   // by layer: tokens of each expert, and dropped
};

// What the output of a training pass is compared with, where the model compares by itself
// (Model::gives_losses): scores of all tokens are then never there together.
struct Aim {
  at::Tensor target = {};  // [batch, seq] int64, of all samples; undefined: scores are wanted
  at::Tensor scale = {};   // that the loss is multiplied by (fp16), if any
};

// What a forward pass depends on beside input and weights. Dropout masks are f(seed, step, layer,
// global position).
struct Pass {
  bool training = false;
  uint64_t seed = 0;
  int64_t step = 0;
  at::Tensor device_step = {};    // the same as an int64 scalar on the device, which replays of a
                                  // captured step read; undefined: `step` holds
  int64_t first_sample = 0;       // index of the batch's first sample within the global batch
  BlockRunner* blocks = nullptr;  // stands around each of Model::blocks(); null: nobody
  SegmentRunner* segments = nullptr;  // computes blocks or attention again in the backward pass
  Extras* extras = nullptr;           // of a training pass; null: nobody wants them
  Aim aim = {};                       // of a training pass; none: the output is wanted
  // Set by models whose samples are tokens: which of them are here. Unset: all of them.
  parallel::TokenShare tokens = {};
};

// How parameters are made.
struct Build {
  uint64_t seed = 0;
  Precision precision = {};
  c10::Device device = c10::kCPU;  // kMeta: counted, not allocated
  bool dry_params = false;         // parameters get no memory (ZeRO-3): whoever takes a piece of
                                   // one fills it by Model::initial()
  Layout layout = {};              // over which ranks the model is spread
  bool pack_masks = false;         // ReLUs keep a bit an element for the backward pass
  Kernels kernels = Kernels::braid;
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
  // Those that this rank holds, in registration order.
  virtual std::vector<Param> params() const = 0;
  virtual at::Tensor forward(const at::Tensor& input, const Pass& pass) = 0;
  virtual std::vector<LayerRow> layers() const = 0;  // for the sizes in the options
  // Names of the parts that forward() runs through Pass::blocks, in order: "blocks.0", ... All of
  // the model, wherever they are.
  virtual std::vector<std::string> blocks() const { return {}; }
  // Tensors that are saved and shared with the weights, and not trained (running means of
  // BatchNorm): those of module(), if there is one.
  virtual std::vector<Param> buffers() const;
  // How the model was built, if it follows that: its dtypes, device and groups. Null: a model of
  // the program's own class; a run then casts its weights and inputs for train.precision.
  virtual const Build* build() const { return nullptr; }
  // Initial values of elements first, first + 1, ... of a parameter as this rank holds it, as many
  // as there is room.
  virtual void initial(const std::string& param, const at::Tensor& values, int64_t first) const;
  virtual std::shared_ptr<torch::nn::Module> module()
      const;  // for LibTorch programs; null if it is none

  // Some blocks, for pipelines. Those that begin at block 0 take {input}, others what the stage
  // before gave; those that end at the last one give {output}. All blocks: forward().
  virtual Carry stage(const Range& blocks, const Carry& carry, const Pass& pass);
  // What any stage but the last one hands on for this input, whose values are not looked at.
  virtual std::vector<CarrySpec> carried(const at::Tensor& input) const;
  // The parameter that the first and the last stage share. Where the rank holds the last stage
  // alone it is a copy that is not among params(): filled before a step, its gradient is given
  // back.
  virtual std::optional<Param> tied() const { return {}; }

  // Where tokens, rows or scores are spread over ranks: what of a target this rank's output is
  // compared with, how, and the output of all ranks together.
  virtual at::Tensor local_target(const at::Tensor& target) const { return target; }
  virtual LossShare loss_share() const { return {}; }
  // Whether a pass with an Aim gives the sum of its cross-entropies, of this rank's tokens, instead
  // of scores.
  virtual bool gives_losses() const { return false; }
  virtual at::Tensor whole_output(const at::Tensor& output) const { return output; }

  double flops_forward() const;  // one sample
  int64_t parameters() const;
};

// The whole model as the outermost block: what a program calls where weights may be gathered.
at::Tensor run(Model& model, const at::Tensor& input, const Pass& pass);

}  // namespace braid::nn
