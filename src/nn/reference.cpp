// SPDX-License-Identifier: BSD-3-Clause
#include "reference.h"

#include <fmt/format.h>

#include "braid/core/error.h"

namespace braid::nn {
namespace {

ConfigError not_upstream(const std::string& what, const std::string& why, const std::string& fix) {
  return ConfigError({.what = "model.kernels = reference with " + what,
                      .why = "it runs the operators of the model's first implementation, " + why,
                      .fix = fix + ", or model.kernels=braid"});
}

}  // namespace

void check_reference(const std::string& model, const Build& build) {
  if (build.kernels == Kernels::braid) return;
  const Layout& layout = build.layout;
  const int tensor = layout.tensor.size();
  if (model != "vit" && model != "swinir")
    throw not_upstream("model.name = " + model, "which is known for vit and swinir",
                       "set model.name=vit");
  const Precision& policy = build.precision;
  if (c10::elementSize(policy.stream) < c10::elementSize(policy.param))
    throw not_upstream(fmt::format("train.stream = {}", dtype_name(policy.stream)),
                       "whose residual stream has the dtype of the parameters",
                       "set train.stream=policy");
  if (layout.context.size() > 1)
    throw not_upstream(fmt::format("mesh.context = {}", layout.context.size()),
                       "of which no figure with a context axis is published", "set mesh.context=1");
  if (!layout.stages.empty())
    throw not_upstream("a pipeline", "which has none", "set mesh.pipeline=1");
  if (tensor > 1 && model == "swinir")
    throw not_upstream(fmt::format("mesh.tensor = {} for swinir", tensor),
                       "which does not split the layers of swinir", "set mesh.tensor=1");
  if (tensor > 1 && layout.sequence)
    throw not_upstream("parallel.sequence",
                       "whose ranks of tensor hold all tokens between split layers",
                       "set parallel.sequence=false");
}

}  // namespace braid::nn
