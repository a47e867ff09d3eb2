// SPDX-License-Identifier: BSD-3-Clause
// The light interface `Model` over a torch module that has forward(input, pass) and layers().
//
//   return std::make_unique<ModuleModel<Vit>>("vit", std::make_shared<Vit>(Scope{build}, options));
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "braid/nn/layers.h"

namespace braid::nn {

template <class Module>
class ModuleModel final : public Model {
 public:
  ModuleModel(std::string name, std::shared_ptr<Module> module)
      : name_(std::move(name)), module_(std::move(module)) {}

  const std::string& name() const override { return name_; }
  std::vector<Param> params() const override {
    std::vector<Param> params = named_params(*module_);
    std::map<std::string, const Layer*> layers;
    for (const auto& module : module_->modules())
      if (const auto* layer = dynamic_cast<const Layer*>(module.get()))
        layers[layer->path()] = layer;
    for (Param& param : params) {
      const auto owner = layers.find(std::string(module_of(param)));
      if (owner == layers.end()) continue;
      const std::string full = param.name, path = owner->first;
      param =
          owner->second->described(full.substr(path.empty() ? 0 : path.size() + 1), param.tensor);
      param.name = full;
    }
    return params;
  }
  at::Tensor forward(const at::Tensor& input, const Pass& pass) override {
    return module_->forward(input, pass);
  }
  Carry stage(const Range& blocks, const Carry& carry, const Pass& pass) override {
    if constexpr (requires { module_->stage(blocks, carry, pass); })
      return module_->stage(blocks, carry, pass);
    else
      return Model::stage(blocks, carry, pass);
  }
  std::vector<CarrySpec> carried(const at::Tensor& input) const override {
    if constexpr (requires { module_->carried(input); })
      return module_->carried(input);
    else
      return Model::carried(input);
  }
  std::optional<Param> tied() const override {
    if constexpr (requires { module_->tied(); })
      return module_->tied();
    else
      return Model::tied();
  }
  at::Tensor local_target(const at::Tensor& target) const override {
    if constexpr (requires { module_->local_target(target); })
      return module_->local_target(target);
    else
      return Model::local_target(target);
  }
  LossShare loss_share() const override {
    if constexpr (requires { module_->loss_share(); })
      return module_->loss_share();
    else
      return Model::loss_share();
  }
  bool gives_losses() const override {
    if constexpr (requires { module_->gives_losses(); })
      return module_->gives_losses();
    else
      return Model::gives_losses();
  }
  at::Tensor whole_output(const at::Tensor& output) const override {
    if constexpr (requires { module_->whole_output(output); })
      return module_->whole_output(output);
    else
      return Model::whole_output(output);
  }
  std::vector<Param> buffers() const override { return {}; }  // constants of its sizes alone
  const Build* build() const override { return &module_->scope().build; }
  std::vector<LayerRow> layers() const override { return module_->layers(); }
  std::vector<std::string> blocks() const override { return module_->blocks(); }
  void initial(const std::string& param, const at::Tensor& values, int64_t first) const override {
    const std::string path(module_of({param, {}}));
    for (const auto& module : module_->modules()) {
      const auto* layer = dynamic_cast<const Layer*>(module.get());
      if (layer != nullptr && layer->path() == path)
        return layer->initial(param.substr(path.empty() ? 0 : path.size() + 1), values, first);
    }
    Model::initial(param, values, first);
  }
  std::shared_ptr<torch::nn::Module> module() const override { return module_; }

 private:
  std::string name_;
  std::shared_ptr<Module> module_;
};

}  // namespace braid::nn
