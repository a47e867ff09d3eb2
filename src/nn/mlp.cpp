// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "braid/nn/options.h"
#include "module_model.h"

namespace braid::nn {
namespace {

// Linear, ReLU, dropout for each hidden width, then a Linear: logits. Numbered as in a torch
// Sequential of all of them.
class Mlp : public Layer {
 public:
  Mlp(Scope scope, const MlpOptions& options)
      : Layer(std::move(scope)), network_(child<Layer>("network")) {
    int64_t width = options.inputs;
    for (int64_t hidden : options.hidden) {
      add(width, hidden);
      drops_.emplace_back(network_->scope(), std::to_string(linears_.size() * 3 - 1),
                          options.dropout);
      width = hidden;
    }
    add(width, options.outputs);
  }

  at::Tensor forward(const at::Tensor& input,
                     const Pass& pass) const {  // [B, inputs] -> [B, outputs]
    const auto here = enter();
    at::Tensor x = input;
    for (size_t i = 0; i < linears_.size(); ++i)
      x = run_block(pass.blocks, linears_[i]->path(), x,
                    [&](const at::Tensor& in) { return step(i, in, pass); });
    return x;
  }

  std::vector<LayerRow> layers() const {
    std::vector<LayerRow> table;
    for (const auto& linear : linears_) table.push_back(linear->row({}));
    return table;
  }

  std::vector<std::string> blocks() const { return paths_of(linears_); }

 private:
  at::Tensor step(size_t i, const at::Tensor& x, const Pass& pass) const {
    const at::Tensor y = linears_[i]->forward(x);
    return i < drops_.size() ? drops_[i](y.relu(), pass) : y;
  }

  void add(int64_t in, int64_t out) {
    const LinearOptions options = {.weight = Init::fan_in(in), .bias_init = Init::fan_in(in)};
    linears_.push_back(
        network_->child<Linear>(std::to_string(linears_.size() * 3), in, out, options));
  }

  std::shared_ptr<Layer> network_;
  std::vector<std::shared_ptr<Linear>> linears_;
  std::vector<Dropout> drops_;
};

}  // namespace

std::unique_ptr<Model> make_mlp(const MlpOptions& options, const Build& build) {
  return std::make_unique<ModuleModel<Mlp>>("mlp", std::make_shared<Mlp>(Scope{build}, options));
}

}  // namespace braid::nn
