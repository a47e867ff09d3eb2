// SPDX-License-Identifier: BSD-3-Clause
// A parameter as every part of braid sees it: its name in the model, its tensor (shared, not
// copied), and which elements of the whole the tensor holds.
#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid {

struct Range {  // begin, begin + 1, ... end - 1
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
  auto operator<=>(const Range&) const = default;
};

// The indices of one dimension that a rank holds, range after range.
struct Cut {
  int64_t dim = 0;
  std::vector<Range> ranges = {};
  bool operator==(const Cut&) const = default;
  auto operator<=>(const Cut&) const = default;
};

// Which elements of a tensor a rank holds: a run, in row-major order, of a box cut out of it.
struct Piece {
  std::vector<int64_t> whole = {};  // shape of the whole; empty: the tensor is whole itself
  std::vector<Cut> cuts = {};       // each dimension at most once; none: the box is the whole
  int64_t first = 0;                // element of the box that stands first in the tensor
  bool operator==(const Piece&) const = default;
};

// Elements that stand together in the whole and in the piece.
struct Run {
  int64_t from = 0;  // element of the whole
  int64_t at = 0;    // element of the tensor that holds the piece
  int64_t count = 0;
  bool operator==(const Run&) const = default;
};
// The runs of a piece of `count` elements, in the order of the tensor; neighbours are joined.
std::vector<Run> runs_of(const Piece& piece, int64_t count);
std::vector<int64_t> box_of(const Piece& piece);  // shape of the box

// What gradients of a parameter are held in: its own dtype, or what Tensor::set_grad_dtype said.
c10::ScalarType gradient_dtype(const at::Tensor& tensor);

struct Param {
  std::string name;
  at::Tensor tensor;
  Piece piece = {};
  bool repeated = false;  // a lower rank of the tensor or expert axis holds the same elements:
                          // it counts them in norms
  bool expert = false;    // each rank of the expert axis has its own: gradients are not summed
                          // over it
  bool tensor_partial = false;  // each rank of the tensor axis has a part of the gradient: they are
                                // summed over it, too

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
