// SPDX-License-Identifier: BSD-3-Clause
// The light interface `Model` over a torch module that has forward(input, pass) and layers().
//
//   return std::make_unique<ModuleModel<Vit>>("vit", std::make_shared<Vit>(Scope{build}, options));
#pragma once
#include <memory>
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
  std::vector<Param> params() const override { return named_params(*module_); }
  at::Tensor forward(const at::Tensor& input, const Pass& pass) override {
    return module_->forward(input, pass);
  }
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
