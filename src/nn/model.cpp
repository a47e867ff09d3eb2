// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/model.h"

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

std::shared_ptr<torch::nn::Module> Model::module() const { return nullptr; }

}  // namespace braid::nn
