// SPDX-License-Identifier: BSD-3-Clause
// A parameter as every part of braid sees it: its name in the model, its tensor (shared, not
// copied), and which elements of the whole the tensor holds.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid {

// A run of elements of a tensor, in row-major order: what a rank holds of it.
struct Piece {
  std::vector<int64_t> whole = {};  // shape of the whole; empty: the tensor is whole itself
  int64_t first = 0;                // element of the whole that stands first in the tensor
  bool operator==(const Piece&) const = default;
};

struct Param {
  std::string name;
  at::Tensor tensor;
  Piece piece = {};

  bool is_whole() const { return piece.whole.empty(); }
  int64_t dims() const {  // of the whole
    return is_whole() ? tensor.dim() : static_cast<int64_t>(piece.whole.size());
  }
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
