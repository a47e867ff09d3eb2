// SPDX-License-Identifier: BSD-3-Clause
// Layers written once (heavy header). A layer knows its full name, so its initial values are
// f(seed, name, element) and its dropout masks f(seed, step, name, position): neither depends on
// the order of construction or on the layout of a run.
//
//   struct Block : nn::Layer {
//     explicit Block(const nn::Scope& scope) : Layer(scope), fc(child<nn::Linear>("fc", 64, 64)) {}
//     at::Tensor forward(const at::Tensor& x) {
//       const auto here = enter();
//       return fc->forward(x);
//     }
//     std::shared_ptr<nn::Linear> fc;
//   };
//
// Tensor parallelism: a block is a pair of split layers, and what stands between blocks (norms,
// residuals) is as on one rank, but of this rank's tokens with Layout::sequence (dimension 1).
//
//   const nn::LinearOptions in{.split = nn::Split::columns};  // .unit: of a head
//   fc1 = child<nn::Linear>("fc1", width, hidden, in);
//   fc2 = child<nn::Linear>("fc2", hidden, width, nn::LinearOptions{.split = nn::Split::rows});
//   h = columns(x, pass, {fc1.get()})[0];  // enters once for all layers in the list
//   h = drop1(h, pass, fc1->window(-1));   // its outputs are fc1->held(); dropout is told so
//   y = drop2(fc2->forward(h), pass);      // leaves: the sum over ranks, then the bias
//
// A model without tokens clears `sequence` in the Layout it builds with.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "braid/core/observe.h"
#include "braid/kernels/dropout.h"
#include "braid/kernels/lanes.h"
#include "braid/nn/model.h"
#include "braid/parallel/tensor.h"

namespace braid::nn {

class Linear;

// The tokens of a sample that this rank has, of `whole`.
struct HeldTokens {
  int64_t whole = 0;
  std::vector<Range> ranges = {};
};
HeldTokens tokens_in_split(const Layout& layout, const Pass& pass);        // of split layers
HeldTokens tokens_between_splits(const Layout& layout, const Pass& pass);  // norms, residuals

// How parameters are made, and the place in the model where.
struct Scope {
  Build build;
  std::string path = {};  // "blocks.0"; "" at the root
  Scope operator/(const std::string& name) const;
};

// Initial values of a parameter.
struct Init {
  enum class Kind { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  double scale = 0;    // standard deviation, or bound of the uniform distribution
  double cut = 1e300;  // normal values beyond +-cut are drawn again
  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones}; }
  static Init normal(double std) { return {Kind::normal, std}; }
  static Init truncated(double std) {
    return {Kind::normal, std, 2};
  }  // absolute cuts, as timm's trunc_normal_
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
  static Init fan_in(
      int64_t inputs);  // uniform +-1/sqrt(inputs): the default of torch's Linear and Conv2d
};

// What a rank holds of a parameter, and how its gradient comes together (Param has the meanings).
struct ParamPart {
  std::vector<Cut> cuts = {};
  bool repeated = false;
  bool expert = false;
  bool tensor_partial = false;
};

// A torch module that knows its full name and how to make parameters and children.
class Layer : public torch::nn::Module {
 public:
  explicit Layer(Scope scope) : scope_(std::move(scope)) {}
  const Scope& scope() const { return scope_; }
  const std::string& path() const { return scope_.path; }

  template <class Child, class... Args>
  std::shared_ptr<Child> child(const std::string& name, Args&&... args) {
    return register_module(name,
                           std::make_shared<Child>(scope_ / name, std::forward<Args>(args)...));
  }
  // `sizes` are those of the whole; what `part` cuts out of it is made and returned.
  at::Tensor param(const std::string& name, at::IntArrayRef sizes, Init init,
                   const ParamPart& part = {});
  // An own parameter as the trainer sees it, but for its full name.
  Param described(const std::string& name, const at::Tensor& tensor) const;
  // Initial values of elements first, first + 1, ... of an own parameter as this rank holds it, as
  // many as there is room.
  void initial(const std::string& name, const at::Tensor& values, int64_t first) const;
  // The layer's line in the table: its own parameters without those of children; `output` without
  // the batch.
  LayerRow row(std::string kind, std::vector<int64_t> output, double flops) const;

 protected:
  // While it lives, operators belong to this layer: each forward begins with it.
  struct Inside {
    explicit Inside(const Scope& scope)
        : module(scope.path),
          autocast(scope.build.kernels, scope.build.device.type(), scope.build.precision.compute) {}
    ModuleScope module;
    Autocast autocast;
  };
  [[nodiscard]] Inside enter() const { return Inside(scope_); }
  bool as_reference() const { return scope_.build.kernels == Kernels::reference; }
  const Layout& layout() const { return scope_.build.layout; }
  parallel::SplitAxis split_axis() const;
  // What all ranks of tensor hold alike. on_tokens: it works on this rank's tokens, so that with
  // Layout::sequence each rank has a part of its gradient.
  ParamPart replicated(bool on_tokens = true) const;
  // Enters the split region: of all tokens of the context rank, in the compute dtype.
  at::Tensor to_split(const at::Tensor& x, const Pass& pass) const;
  // The same, and what column-split layers make of it, while it travels (Layout::overlap).
  std::vector<at::Tensor> columns(const at::Tensor& x, const Pass& pass,
                                  const std::vector<const Linear*>& linears) const;
  // Of one layer, with the activation behind it, for the next layer.
  kernels::Activated columns_to(const at::Tensor& x, const Pass& pass, const Linear& linear,
                                kernels::Activation then) const;
  // What operators are handed; the reference's cast for themselves.
  c10::ScalarType compute() const {
    return as_reference() ? scope_.build.precision.param : scope_.build.precision.compute;
  }
  // Of what goes from block to block.
  c10::ScalarType stream_dtype() const { return scope_.build.precision.stream; }
  at::Tensor cast(const at::Tensor& tensor) const {  // no copy if it has that dtype
    const bool cast_already = as_reference() && tensor.element_size() == 2;
    return cast_already ? tensor : tensor.to(compute());
  }

 private:
  Scope scope_;
  struct Made {
    Init init;
    Piece piece;
    ParamPart part;
  };
  std::map<std::string, Made> made_;
};

// The names of blocks, for Model::blocks().
template <class Block>
std::vector<std::string> paths_of(const std::vector<std::shared_ptr<Block>>& blocks) {
  std::vector<std::string> paths;
  for (const auto& block : blocks) paths.push_back(block->path());
  return paths;
}

// How a weight is spread over the tensor axis. columns: each rank has some outputs and takes the
// input of all tokens; rows: each rank has some inputs, and the parts of the sum are added over the
// axis, before the bias.
enum class Split : uint8_t { none, columns, rows };

struct LinearOptions {
  bool bias = true;
  bool stored_in_out = false;  // weight [in, out], as GPT-2's Conv1D, instead of [out, in]
  Init weight = Init::truncated(0.02);
  Init bias_init = Init::zeros();
  Split split = Split::none;
  int64_t unit = 1;  // numbers that stay together: the width of a head
  // columns: outputs come in so many equal parts, each of which is split (q, k, v in one weight).
  int64_t parts = 1;
  // columns with fewer units than ranks (heads of keys): the ranks that hold the same ones, over
  // which gradients are summed.
  comm::Group sharers = {};
  bool fp8 = true;  // where the precision says so; not for the head of a model
  // Zeros that x and y carry between their numbers (kernels/lanes.h); in units of `unit` where the
  // dimension is split.
  kernels::Lanes in_lanes = {}, out_lanes = {};
};

// y = x W^T + b in the compute dtype.
class Linear : public Layer {
 public:
  Linear(Scope scope, int64_t in, int64_t out, LinearOptions options = {});
  // columns: x has entered the split region (to_split), y is this rank's outputs.
  // rows: x is this rank's inputs, y has left the region.
  // An activation that is given and not computed yet is not kept, but what it is computed of.
  at::Tensor forward(kernels::Activated x) const;
  // columns: the activation behind it, for the next layer.
  kernels::Activated forward_to(const at::Tensor& x, kernels::Activation then) const;
  // Outputs (columns) or inputs (rows) that this rank holds.
  const std::vector<Range>& held() const { return held_; }
  int64_t held_count() const;
  kernels::DropWindow window(int64_t dim) const;  // held() as a dimension of a tensor
  // [out, in] and bias: the parameters themselves, or with the zeros of their lanes, cast.
  parallel::SplitWeights weights() const;
  Fp8 fp8() const { return fp8_; }
  LayerRow row(std::vector<int64_t> lead)
      const;  // lead: dims before the last one, without the batch: {tokens}
  at::Tensor weight, bias;

 private:
  at::Tensor forward_as_reference(const at::Tensor& x) const;
  void check_fp8() const;
  int64_t in_, out_;
  bool stored_in_out_;
  Split split_;
  Fp8 fp8_;
  kernels::WeightLanes lanes_;
  comm::Group sharers_;
  std::vector<Range> held_;
};

// The residual stream and what the next branch begins with.
struct NormedSum {
  at::Tensor sum;  // in the dtype of the stream
  at::Tensor y;    // normalised, in the compute dtype
};

// LayerNorm and RmsNorm: statistics in fp32 or better, result in the compute dtype. `add` is
// forward(x + branch) in one pass, and gives the sum, too (without a branch x itself, whose
// gradient then comes in one piece):
//
//   const auto [sum, y] = norm2->add(x, attention);
//   return sum + mlp->forward(y, pass);
class Norm : public Layer {
 public:
  using Layer::Layer;
  at::Tensor forward(const at::Tensor& x) const { return forward(x, compute()); }
  at::Tensor forward(const at::Tensor& x, c10::ScalarType dtype) const;
  NormedSum add(const at::Tensor& x, kernels::Branch branch = {}) const;
  LayerRow row(std::vector<int64_t> lead) const;
  at::Tensor weight, bias;  // no bias: RMS norm

 protected:
  double eps_ = 0;
  int64_t lanes_ = 0;  // of y and of branches; 0: as many as x has numbers
};

class LayerNorm : public Norm {
 public:
  // lanes: of y and of what is added, zeros behind the numbers (kernels/lanes.h).
  LayerNorm(Scope scope, int64_t width, double eps, kernels::Lanes lanes = {});
};

class RmsNorm : public Norm {
 public:
  RmsNorm(Scope scope, int64_t width, double eps);
};

class Embedding : public Layer {
 public:
  // Split::rows: each rank has some of the entries, and the sum over ranks leaves the split region.
  Embedding(Scope scope, int64_t entries, int64_t width, Init init = Init::normal(0.02),
            Split split = Split::none);
  at::Tensor forward(const at::Tensor& ids) const;  // in the parameters' dtype
  LayerRow row(int64_t tokens) const;
  int64_t entries() const { return entries_; }  // of all ranks
  at::Tensor weight;

 private:
  int64_t entries_;
  Range held_;
  bool split_;
};

struct Conv2dOptions {
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 1;
};

class Conv2d : public Layer {
 public:
  Conv2d(Scope scope, int64_t in, int64_t out, Conv2dOptions options = {});
  at::Tensor forward(const at::Tensor& x) const;
  LayerRow row(int64_t rows, int64_t columns) const;  // size of the output
  at::Tensor weight, bias;

 private:
  Conv2dOptions options_;
};

// Places where elements or whole branches of samples are dropped in training. Values, not modules:
// they hold no parameters.
class Dropout {
 public:
  Dropout(const Scope& scope, const std::string& name, double rate)
      : path_((scope / name).path), rate_(rate), layout_(scope.build.layout) {}
  // x [batch, tokens, ...] between split regions.
  at::Tensor operator()(const at::Tensor& x, const Pass& pass) const;
  // x [batch, tokens, ...] within one, where `window` says what else this rank holds in part.
  at::Tensor operator()(const at::Tensor& x, const Pass& pass, kernels::DropWindow window) const;
  kernels::Drop at(const Pass& pass) const;  // rate 0 unless training; no windows
  bool active(const Pass& pass) const { return pass.training && rate_ > 0; }

 private:
  std::string path_;
  double rate_;
  Layout layout_;
};

class DropPath {
 public:
  DropPath(const Scope& scope, const std::string& name, double rate)
      : drop_(scope, name, rate), kernels_(scope.build.kernels) {}
  kernels::Branch operator()(const at::Tensor& x, const Pass& pass) const;

 private:
  Dropout drop_;
  Kernels kernels_;
};

struct MlpBlockOptions {
  int64_t hidden = 0;
  double dropout = 0;
  bool tanh_gelu = false;  // GPT-2's approximation instead of the exact erf
  LinearOptions linear = {};
  kernels::Lanes lanes = {};  // of x and y
};

// fc2(gelu(fc1(x))), with dropout after both; the hidden width is split over tensor.
class MlpBlock : public Layer {
 public:
  MlpBlock(Scope scope, int64_t width, MlpBlockOptions options);
  at::Tensor forward(const at::Tensor& x, const Pass& pass) const;
  void rows(std::vector<LayerRow>& table, std::vector<int64_t> lead) const;
  std::shared_ptr<Linear> fc1, fc2;

 private:
  at::Tensor forward_as_reference(const at::Tensor& x, const Pass& pass) const;
  Dropout drop1_, drop2_;
  kernels::Activation gelu_;
};

}  // namespace braid::nn
