// SPDX-License-Identifier: BSD-3-Clause
// What a LibTorch module holds beside its parameters, and its parameters through a holder
// (torch::nn::Linear, a smart pointer).
//
//   for (const Param& buffer : named_buffers(net))
//     state.tensors["model/" + buffer.name] = buffer.tensor;   // running means of BatchNorm
#pragma once
#include <vector>

#include "braid/core/param.h"

namespace braid {

template <class Module>
concept IsModule = requires(Module& module) {
  module.named_parameters();
  module.named_buffers();
};

template <class Holder>
concept HoldsModule = !IsModule<Holder> && requires(Holder& holder) {
  holder->named_parameters();
  holder->named_buffers();
};

template <HoldsModule Holder>
std::vector<Param> named_params(Holder& holder) {
  return named_params(*holder);
}

// Tensors that belong to a module and are not trained, in registration order.
template <IsModule Module>
std::vector<Param> named_buffers(Module& module) {
  std::vector<Param> buffers;
  for (auto& item : module.named_buffers())
    if (item.value().defined()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

template <HoldsModule Holder>
std::vector<Param> named_buffers(Holder& holder) {
  return named_buffers(*holder);
}

}  // namespace braid
