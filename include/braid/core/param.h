// SPDX-License-Identifier: BSD-3-Clause
// A parameter as every part of braid sees it: its name in the model and its tensor (shared, not
// copied).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid {

struct Param {
  std::string name;
  at::Tensor tensor;
};

// blocks.0.attn of blocks.0.attn.weight.
inline std::string_view module_of(const Param& param) {
  const size_t dot = param.name.rfind('.');
  return dot == std::string::npos ? std::string_view()
                                  : std::string_view(param.name).substr(0, dot);
}

// For any LibTorch module: named_params(*module) gives its parameters in registration order.
template <class Module>
std::vector<Param> named_params(Module& module) {
  std::vector<Param> params;
  for (auto& item : module.named_parameters()) params.push_back({item.key(), item.value()});
  return params;
}

}  // namespace braid
