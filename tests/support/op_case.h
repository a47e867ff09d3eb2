// SPDX-License-Identifier: BSD-3-Clause
// An operator with inputs of given sizes, to be run on real, meta and dry tensors alike.
//
//   OpCase gelu = {"gelu", {{{3, 5}}}, [](auto& x) { return Results{at::gelu(x[0])}; }};
//   auto inputs = inputs_of(gelu, at::kMeta);
//   auto found = forward_backward(gelu, inputs);   // results, then gradients
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace braid::test {

enum class Layout {
  contiguous,
  transposed,     // the last two dimensions swapped in memory
  channels_last,  // [B, C, H, W] with C innermost
  gaps            // every row is half of a longer one
};

struct OpInput {
  std::vector<int64_t> sizes;
  c10::ScalarType dtype = c10::kFloat;
  Layout layout = Layout::contiguous;
  bool grad = true;  // of floating dtypes
};

using Tensors = std::vector<at::Tensor>;
using OpRun = std::function<Tensors(Tensors&)>;

struct OpCase {
  std::string name;
  std::vector<OpInput> inputs;
  OpRun run;
};

// The name of a test: letters, digits and underscores.
template <class Info>
std::string word_of(const Info& info) {
  std::string word = info.param.name;
  std::replace(word.begin(), word.end(), '/', '_');
  return word;
}

inline void PrintTo(const OpCase& c, std::ostream* out) { *out << c.name; }

inline at::Tensor laid_out(const OpInput& input, c10::Device device) {
  const auto options = at::TensorOptions(input.dtype).device(device);
  std::vector<int64_t> sizes = input.sizes;
  switch (input.layout) {
    case Layout::transposed:
      std::swap(sizes.end()[-1], sizes.end()[-2]);
      return at::zeros(sizes, options).transpose(-1, -2);
    case Layout::channels_last:
      return at::zeros(sizes, options.memory_format(at::MemoryFormat::ChannelsLast));
    case Layout::gaps:
      sizes.back() *= 2;
      return at::zeros(sizes, options).narrow(-1, 0, input.sizes.back());
    case Layout::contiguous:
      break;
  }
  return at::zeros(sizes, options);
}

inline Tensors inputs_of(const OpCase& c, c10::Device device) {
  Tensors inputs;
  for (const OpInput& input : c.inputs) {
    const at::Tensor made = laid_out(input, device).detach();
    inputs.push_back(made.requires_grad_(input.grad && made.is_floating_point()));
  }
  return inputs;
}

// Results, then the gradients of the inputs that have one.
inline Tensors forward_backward(const OpCase& c, Tensors& inputs) {
  Tensors leaves;
  for (const at::Tensor& input : inputs)
    if (input.requires_grad()) leaves.push_back(input);
  const Tensors results = c.run(inputs);
  Tensors found, roots, seeds;
  for (const at::Tensor& result : results) {
    found.push_back(result.defined() ? result.detach() : result);
    if (!result.defined() || !result.requires_grad()) continue;
    roots.push_back(result);
    seeds.push_back(at::ones_like(result));
  }
  if (!roots.empty()) torch::autograd::backward(roots, seeds);
  for (const at::Tensor& leaf : leaves) found.push_back(leaf.grad());
  return found;
}

// Sizes, strides and dtype in words: what two runs are compared by.
inline std::string described(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return c10::str(tensor.sizes(), " strides ", tensor.strides(), " ", tensor.dtype());
}

inline std::vector<std::string> described(const Tensors& tensors) {
  std::vector<std::string> words;
  for (const at::Tensor& tensor : tensors) words.push_back(described(tensor));
  return words;
}

}  // namespace braid::test
