// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/parts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <memory>
#include <string>

#include "kernels/side_by_side.h"

namespace braid::kernels {
namespace {

using torch::autograd::variable_list;

class PartsNode final : public torch::autograd::Node {
 public:
  std::string name() const override { return "braid::parts"; }

  variable_list apply(variable_list&& given) override {
    const at::NoGradGuard no_grad;
    variable_list grads = std::move(given);
    const auto some =
        std::find_if(grads.begin(), grads.end(), [](const auto& grad) { return grad.defined(); });
    if (some == grads.end()) return {at::Tensor()};
    const at::Tensor whole = side_by_side(grads);
    if (whole.defined()) return {whole};
    const at::Tensor& like = *some;
    for (at::Tensor& grad : grads)
      if (!grad.defined()) grad = at::zeros(like.sizes(), like.options());
    return {at::cat(grads, -1)};
  }
};

}  // namespace

at::Tensor side_by_side(const std::vector<at::Tensor>& parts) {
  if (!std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.defined(); }))
    return {};
  const at::Tensor& first = parts[0];
  const auto before_last = [](at::IntArrayRef all) { return all.slice(0, all.size() - 1); };
  int64_t width = 0;
  for (const at::Tensor& part : parts) {
    if (part.storage().unsafeGetStorageImpl() != first.storage().unsafeGetStorageImpl() ||
        part.storage_offset() != first.storage_offset() + width || part.stride(-1) != 1 ||
        before_last(part.sizes()) != before_last(first.sizes()) ||
        before_last(part.strides()) != before_last(first.strides()))
      return {};
    width += part.size(-1);
  }
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes.back() = width;
  return first.as_strided(sizes, first.strides(), first.storage_offset());
}

std::vector<at::Tensor> parts(const at::Tensor& whole, int64_t count) {
  const bool graph = torch::autograd::compute_requires_grad(whole);
  const int64_t width = whole.size(-1) / count;
  variable_list outputs;
  {
    const at::NoGradGuard no_grad;
    for (int64_t i = 0; i < count; ++i)
      outputs.push_back(whole.narrow(-1, i * width, width).variable_data());
  }
  if (!graph) return outputs;
  const std::shared_ptr<PartsNode> node(new PartsNode, torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(whole));
  for (const at::Tensor& output : outputs) torch::autograd::set_history(output, node);
  return outputs;
}

}  // namespace braid::kernels
