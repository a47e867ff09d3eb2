// SPDX-License-Identifier: BSD-3-Clause
#include "train/own_model_cast.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>

#include "braid/core/dry.h"
#include "braid/core/error.h"
#include "braid/nn/autocast.h"

namespace braid::train {
namespace {

class CastModel final : public nn::Model {
 public:
  CastModel(nn::Model& inner, const Precision& policy, c10::Device device)
      : inner_(inner), policy_(policy), device_(device) {}

  at::Tensor forward(const at::Tensor& input, const nn::Pass& pass) override {
    const auto inside = autocast();
    return inner_.forward(fitted(input), pass);
  }
  Carry stage(const Range& blocks, const Carry& carry, const nn::Pass& pass) override {
    const auto inside = autocast();
    Carry fitting;
    for (const at::Tensor& one : carry) fitting.push_back(fitted(one));
    return inner_.stage(blocks, fitting, pass);
  }

  const std::string& name() const override { return inner_.name(); }
  std::vector<Param> params() const override { return inner_.params(); }
  std::vector<Param> buffers() const override { return inner_.buffers(); }
  std::vector<nn::LayerRow> layers() const override { return inner_.layers(); }
  std::vector<std::string> blocks() const override { return inner_.blocks(); }
  void initial(const std::string& param, const at::Tensor& values, int64_t first) const override {
    inner_.initial(param, values, first);
  }
  std::shared_ptr<torch::nn::Module> module() const override { return inner_.module(); }
  std::vector<CarrySpec> carried(const at::Tensor& input) const override {
    return inner_.carried(input);
  }
  std::optional<Param> tied() const override { return inner_.tied(); }
  at::Tensor local_target(const at::Tensor& target) const override {
    return inner_.local_target(target);
  }
  nn::LossShare loss_share() const override { return inner_.loss_share(); }
  bool gives_losses() const override { return inner_.gives_losses(); }
  at::Tensor whole_output(const at::Tensor& output) const override {
    return inner_.whole_output(output);
  }

 private:
  bool mixed() const { return policy_.param != policy_.compute; }
  nn::Autocast autocast() const {
    return {mixed() ? nn::Kernels::reference : nn::Kernels::braid, device_.type(), policy_.compute};
  }
  at::Tensor fitted(const at::Tensor& input) const {
    return !mixed() && input.is_floating_point() ? input.to(policy_.param) : input;
  }

  nn::Model& inner_;
  Precision policy_;
  c10::Device device_;
};

// A model is made in fp32, or in what the policy names.
void expect_castable(const nn::Model& model, const Precision& policy) {
  for (const Param& param : model.params()) {
    const c10::ScalarType dtype = param.tensor.scalar_type();
    if (!param.tensor.is_floating_point() || dtype == policy.param || dtype == c10::kFloat)
      continue;
    throw ConfigError(
        {.what = fmt::format("train.precision = {} with {}, whose {} is {}", policy.name,
                             model.name(), param.name, dtype_name(dtype)),
         .why =
             fmt::format("this precision holds weights in {}; only weights of fp32 are cast to it",
                         dtype_name(policy.param)),
         .fix =
             fmt::format("set train.precision to the one of the model, or cast its weights to {} "
                         "before",
                         dtype_name(policy.param))});
  }
}

// As Module::to: the same tensor objects.
void take_to(const Param& param, c10::ScalarType dtype, c10::Device device) {
  const at::Tensor& tensor = param.tensor;
  if (!has_data(tensor)) return;
  const c10::ScalarType wanted = tensor.is_floating_point() ? dtype : tensor.scalar_type();
  if (tensor.scalar_type() == wanted && tensor.device().type() == device.type()) return;
  tensor.set_data(tensor.detach().to(device, wanted));
}

}  // namespace

std::unique_ptr<nn::Model> cast_model(nn::Model& model, const Precision& policy,
                                      c10::Device device) {
  expect_castable(model, policy);
  const at::NoGradGuard no_grad;
  for (const Param& param : model.params()) take_to(param, policy.param, device);
  for (const Param& buffer : model.buffers()) take_to(buffer, policy.param, device);
  if (policy.param == c10::kFloat && policy.compute == c10::kFloat) return nullptr;
  return std::make_unique<CastModel>(model, policy, device);
}

}  // namespace braid::train
