// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/constant_pad_nd.h>
#include <fmt/format.h>

#include <algorithm>

#include "braid/core/error.h"
#include "braid/kernels/masks.h"
#include "braid/nn/blocks.h"
#include "braid/nn/options.h"
#include "module_model.h"
#include "reference.h"

namespace braid::nn {
namespace {

// Linear, ReLU, dropout for each hidden width, then a Linear: logits. Numbered as in a torch
// Sequential of all of them. A block is a Linear and what follows it.
class Mlp : public Layer {
 public:
  Mlp(Scope scope, const MlpOptions& options)
      : Layer(std::move(scope)), options_(options), network_(child<Layer>("network")) {
    for (int64_t hidden : options.hidden) widest_ = std::max(widest_, hidden);
    for (int64_t i = 0; i < count(); ++i) {
      const std::string name = std::to_string(i * 3);
      paths_.push_back((network_->scope() / name).path);
      linears_.push_back(layout().holds(i) ? linear(name, i) : nullptr);
      if (i + 1 < count())
        drops_.emplace_back(network_->scope(), std::to_string(i * 3 + 2), options.dropout);
    }
  }

  at::Tensor forward(const at::Tensor& input,
                     const Pass& pass) const {  // [B, inputs] -> [B, outputs]
    return stage({0, count()}, {input}, pass)[0];
  }

  // Between stages x is as wide as the widest layer: all of them carry the same.
  Carry stage(const Range& some, const Carry& carry, const Pass& pass) const {
    const auto here = enter();
    at::Tensor x = carry.at(0);
    if (some.begin > 0) x = x.narrow(1, 0, width_before(some.begin));
    std::vector<NamedBlock> named;
    for (int64_t i = some.begin; i < some.end; ++i)
      named.push_back(
          {paths_[static_cast<size_t>(i)], closing(step(static_cast<size_t>(i), pass))});
    x = run_blocks(pass, named, std::move(x));
    if (some.end == count() || x.size(1) == widest_) return {x};
    return {at::constant_pad_nd(x, {0, widest_ - x.size(1)})};
  }

  std::vector<CarrySpec> carried(const at::Tensor& input) const {
    return {{{input.size(0), widest_}, compute()}};
  }

  std::vector<LayerRow> layers() const {
    if (!layout().stages.empty()) {  // what other ranks hold has rows, too
      Build whole = scope().build;
      whole.layout = {};
      whole.device = c10::kMeta;
      return Mlp(Scope{whole}, options_).layers();
    }
    std::vector<LayerRow> table;
    for (const auto& linear : linears_) table.push_back(linear->row({}));
    return table;
  }

  std::vector<std::string> blocks() const { return paths_; }

 private:
  int64_t count() const { return static_cast<int64_t>(options_.hidden.size()) + 1; }
  int64_t width_before(int64_t block) const {
    return block == 0 ? options_.inputs : options_.hidden[static_cast<size_t>(block) - 1];
  }
  int64_t width_after(int64_t block) const {
    return block + 1 == count() ? options_.outputs : options_.hidden[static_cast<size_t>(block)];
  }

  BlockForward step(size_t i, const Pass& pass) const {
    const auto linear = linears_.at(i);
    if (i == drops_.size()) return [linear](const at::Tensor& x) { return linear->forward(x); };
    return
        [linear, pass, drop = drops_[i], packed = scope().build.pack_masks](const at::Tensor& x) {
          return drop(kernels::relu(linear->forward(x), packed), pass);
        };
  }

  std::shared_ptr<Linear> linear(const std::string& name, int64_t block) {
    const int64_t in = width_before(block);
    const LinearOptions options = {.weight = Init::fan_in(in), .bias_init = Init::fan_in(in)};
    return network_->child<Linear>(name, in, width_after(block), options);
  }

  MlpOptions options_;
  int64_t widest_ = 0;
  std::shared_ptr<Layer> network_;
  std::vector<std::string> paths_;
  std::vector<std::shared_ptr<Linear>> linears_;  // null where another rank holds the block
  std::vector<Dropout> drops_;
};

// Its samples have neither heads nor tokens to share out.
void check_mlp_axis(const char* axis, const comm::Group& group) {
  if (group.size() == 1) return;
  throw ConfigError({.what = fmt::format("mesh.{} = {} for model mlp", axis, group.size()),
                     .why = "its layers are not split over ranks, only its batch and its blocks",
                     .fix = fmt::format("set mesh.{}=1", axis)});
}

}  // namespace

std::unique_ptr<Model> make_mlp(const MlpOptions& options, const Build& build) {
  check_reference("mlp", build);
  check_mlp_axis("tensor", build.layout.tensor);
  check_mlp_axis("context", build.layout.context);
  return std::make_unique<ModuleModel<Mlp>>("mlp", std::make_shared<Mlp>(Scope{build}, options));
}

}  // namespace braid::nn
