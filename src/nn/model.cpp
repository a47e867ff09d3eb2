// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/model.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include "braid/core/error.h"
#include "braid/core/module.h"

namespace braid::nn {

double Model::flops_forward() const {
  double flops = 0;
  for (const LayerRow& row : layers()) flops += row.flops;
  return flops;
}

int64_t Model::parameters() const {
  int64_t count = 0;
  for (const Param& param : params()) count += param.tensor.numel();
  return count;
}

void Model::initial(const std::string& param, const at::Tensor&, int64_t) const {
  throw InternalError(
      {.what = fmt::format("model {} cannot say the initial values of {}", name(), param),
       .why = "Build::dry_params and ZeRO-3 fill a parameter piece by piece",
       .fix = "override nn::Model::initial"});
}

Carry Model::stage(const Range& blocks, const Carry& carry, const Pass& pass) {
  const auto all = static_cast<int64_t>(this->blocks().size());
  if (blocks.begin == 0 && blocks.end == all) return {forward(carry.at(0), pass)};
  throw ConfigError({.what = fmt::format("model {} cannot run blocks {} to {} of {} alone", name(),
                                         blocks.begin, blocks.end, all),
                     .why = "it does not say how it is cut into stages",
                     .fix = "set mesh.pipeline=1, or override nn::Model::stage"});
}

std::vector<CarrySpec> Model::carried(const at::Tensor&) const { return {}; }

std::shared_ptr<torch::nn::Module> Model::module() const { return nullptr; }

std::vector<Param> Model::buffers() const {
  const auto held = module();
  return held != nullptr ? named_buffers(*held) : std::vector<Param>();
}

at::Tensor run(Model& model, const at::Tensor& input, const Pass& pass) {
  return run_block(pass.blocks, "", input,
                   [&](const at::Tensor& in) { return model.forward(in, pass); });
}

}  // namespace braid::nn
