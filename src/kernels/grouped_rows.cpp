// SPDX-License-Identifier: BSD-3-Clause
// Rows between tokens and slots. Each direction gathers what it writes, in a fixed order, so that
// results do not depend on the order in which threads of a device arrive.
#include <ATen/ops/bmm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "braid/kernels/grouped.h"

namespace braid::kernels {
namespace {

using torch::autograd::variable_list;

struct HeldSlotMap : torch::CustomClassHolder {
  explicit HeldSlotMap(SlotMap given) : map(std::move(given)) {}
  SlotMap map;
};
using HeldMapPtr = c10::intrusive_ptr<HeldSlotMap>;

const SlotMap& map_of(const c10::IValue& held, c10::intrusive_ptr<torch::CustomClassHolder>& keep) {
  keep = held.toCapsule();
  return static_cast<const HeldSlotMap&>(*keep).map;
}

// Rows `index` of x; zeros where the index is `none`.
at::Tensor picked(const at::Tensor& x, const at::Tensor& index, int64_t none, bool full) {
  if (full) return x.index_select(0, index);
  at::Tensor rows = x.index_select(0, index.clamp_max(none - 1));
  return rows.masked_fill_(index.eq(none).unsqueeze(1), 0);
}

at::Tensor in_slots(const at::Tensor& x, const SlotMap& map) {
  return picked(x, map.token, map.tokens, map.full);
}

// What stands for each choice of each token: [tokens, choices, width].
at::Tensor by_choice(const at::Tensor& y, const SlotMap& map) {
  const int64_t choices = map.slot.size(1);
  return picked(y, map.slot.reshape({-1}), map.slots, map.full)
      .view({map.tokens, choices, y.size(1)});
}

// Sums the rows of slots that hold a token, in at least single precision.
at::Tensor added_up(const at::Tensor& rows, const SlotMap& map) {
  const auto dtype = rows.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat;
  at::Tensor sums = at::zeros({map.tokens + 1, rows.size(1)}, rows.options().dtype(dtype));
  sums.index_put_({map.token}, rows.to(dtype), /*accumulate=*/true);
  return sums.narrow(0, 0, map.tokens).to(rows.scalar_type());
}

struct ToSlots : torch::autograd::Function<ToSlots> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const HeldMapPtr& held) {
    context->saved_data["map"] = c10::IValue::make_capsule(held);
    return in_slots(x, held->map);
  }

  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    c10::intrusive_ptr<torch::CustomClassHolder> keep;
    const SlotMap& map = map_of(context->saved_data.at("map"), keep);
    if (!map.slot.defined()) return {added_up(grads[0], map), {}};
    const at::Tensor each = by_choice(grads[0], map);
    return {map.slot.size(1) == 1 ? each.squeeze(1) : each.sum(1), {}};
  }
};

// The gate of what stands in each slot; 0 of an empty one.
at::Tensor gates_of_slots(const at::Tensor& gates, const SlotMap& map) {
  at::Tensor all = at::zeros({map.slots + 1}, gates.options());
  return all.scatter_(0, map.slot.reshape({-1}), gates.reshape({-1})).narrow(0, 0, map.slots);
}

struct FromSlots : torch::autograd::Function<FromSlots> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& y,
                            const at::Tensor& gates, const HeldMapPtr& held) {
    const SlotMap& map = held->map;
    const at::Tensor factors = gates.to(y.scalar_type());
    context->save_for_backward({y, factors});
    context->saved_data["map"] = c10::IValue::make_capsule(held);
    context->saved_data["dtype"] = static_cast<int64_t>(gates.scalar_type());
    if (!map.slot.defined()) return added_up(y.mul(factors.unsqueeze(1)), map);
    return at::bmm(factors.unsqueeze(1), by_choice(y, map)).squeeze(1);
  }

  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &y = saved[0], &factors = saved[1];
    c10::intrusive_ptr<torch::CustomClassHolder> keep;
    const SlotMap& map = map_of(context->saved_data.at("map"), keep);
    const auto dtype = static_cast<c10::ScalarType>(context->saved_data.at("dtype").toInt());
    const at::Tensor rows = in_slots(grads[0], map);  // the gradient of its token in each slot
    if (!map.slot.defined())
      return {rows.mul(factors.unsqueeze(1)), rows.mul(y).sum(1).to(dtype), {}};
    const at::Tensor of_gates = at::bmm(by_choice(y, map), grads[0].unsqueeze(2)).squeeze(2);
    return {rows.mul(gates_of_slots(factors, map).unsqueeze(1)), of_gates.to(dtype), {}};
  }
};

struct Reordered : torch::autograd::Function<Reordered> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& order, const at::Tensor& inverse) {
    context->save_for_backward({inverse});
    return x.index_select(0, order);
  }

  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    return {grads[0].index_select(0, context->get_saved_variables()[0]), {}, {}};
  }
};

}  // namespace

at::Tensor to_slots(const at::Tensor& x, const SlotMap& map) {
  return ToSlots::apply(x, c10::make_intrusive<HeldSlotMap>(map));
}

at::Tensor from_slots(const at::Tensor& y, const at::Tensor& gates, const SlotMap& map) {
  return FromSlots::apply(y, gates, c10::make_intrusive<HeldSlotMap>(map));
}

at::Tensor reordered(const at::Tensor& x, const at::Tensor& order, const at::Tensor& inverse) {
  return Reordered::apply(x, order, inverse);
}

}  // namespace braid::kernels
