// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/grouped.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "braid/core/dry.h"

namespace braid::kernels {
namespace {

using torch::autograd::variable_list;

// The fused kernel takes bf16 whose rows begin at multiples of 16 bytes.
bool has_grouped_kernel(const at::Tensor& a, int64_t in, int64_t out) {
  return has_data(a) && a.is_cuda() && a.scalar_type() == c10::kBFloat16 && in % 8 == 0 &&
         out % 8 == 0;
}

// Calls each(group, first row, rows) for groups that have rows.
template <class Each>
void for_each_group(const at::Tensor& offsets, const Each& each) {
  const at::Tensor host = offsets.cpu();  // itself on the CPU
  const int32_t* end = host.const_data_ptr<int32_t>();
  for (int64_t group = 0, begin = 0; group < host.numel(); begin = end[group++])
    if (end[group] > begin) each(group, begin, end[group] - begin);
}

at::Tensor product_of_rows(const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& offsets) {
  if (!offsets.defined()) return at::bmm(x, weight);
  if (has_grouped_kernel(x, weight.size(1), weight.size(2)))
    return at::_grouped_mm(x.contiguous(), weight, offsets);
  at::Tensor out = at::empty({x.size(0), weight.size(2)}, x.options());
  if (!has_data(x)) return at::mm_out(out, x, weight.select(0, 0));
  for_each_group(offsets, [&](int64_t group, int64_t begin, int64_t rows) {
    at::Tensor part = out.narrow(0, begin, rows);
    at::mm_out(part, x.narrow(0, begin, rows), weight.select(0, group));
  });
  return out;
}

at::Tensor gradient_of_groups(const at::Tensor& x, const at::Tensor& grad,
                              const at::Tensor& offsets) {
  if (!offsets.defined()) return at::bmm(x.transpose(1, 2), grad);
  if (has_grouped_kernel(x, x.size(1), grad.size(1)))
    return at::_grouped_mm(x.contiguous().t(), grad.contiguous(), offsets);
  at::Tensor all = at::empty({offsets.size(0), x.size(1), grad.size(1)}, x.options());
  if (!has_data(x)) {  // as many operations, wherever the groups begin
    at::Tensor first = all.select(0, 0);
    at::mm_out(first, x.t(), grad);
    return all;
  }
  all.zero_();
  for_each_group(offsets, [&](int64_t group, int64_t begin, int64_t rows) {
    at::Tensor part = all.select(0, group);
    at::mm_out(part, x.narrow(0, begin, rows).t(), grad.narrow(0, begin, rows));
  });
  return all;
}

// What the backward pass needs beside its saved tensors.
struct GroupedJob : torch::CustomClassHolder {
  at::Tensor offsets;
  std::shared_ptr<Deferred> later;  // null: the gradient of the weight comes with that of x
  int64_t key = 0;
  at::Tensor of_weight;  // whose gradient comes later: the way to its parameter
  uint64_t place = 0;
};

struct GroupedProduct : torch::autograd::Function<GroupedProduct> {
  // If the gradient of the weight comes later, `weight` is detached, and `anchor` needs a gradient,
  // so that the output does where x does not.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& /*anchor*/,
                            const at::Tensor& x, const at::Tensor& weight,
                            const c10::intrusive_ptr<GroupedJob>& job) {
    context->save_for_backward({x, weight});
    context->saved_data["job"] = c10::IValue::make_capsule(job);
    return product_of_rows(x, weight, job->offsets);
  }

  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto capsule = context->saved_data.at("job").toCapsule();
    const auto& job = static_cast<const GroupedJob&>(*capsule);
    const at::Tensor &x = saved[0], &weight = saved[1], &grad = grads[0];
    variable_list found(4);
    if (context->needs_input_grad(1))
      found[1] = product_of_rows(grad, weight.transpose(1, 2), job.offsets);
    if (context->needs_input_grad(2)) found[2] = gradient_of_groups(x, grad, job.offsets);
    if (job.later == nullptr) return found;
    const auto compute = [x = x.detach(), grad, offsets = job.offsets] {
      return gradient_of_groups(x, grad, offsets);
    };
    job.later->add(job.key, LaterGradient{job.of_weight, compute, job.place});
    return found;
  }
};

}  // namespace

at::Tensor grouped_product(const at::Tensor& x, const Groups& groups) {
  const auto& later = groups.later;
  const bool late = later != nullptr && later->active() && groups.weight.requires_grad() &&
                    at::GradMode::is_enabled();
  auto job = c10::make_intrusive<GroupedJob>();
  job->offsets = groups.offsets;
  const at::Tensor anchor = at::empty({0}, x.options());
  if (!late) return GroupedProduct::apply(anchor, x, groups.weight, job);
  job->later = later;
  job->key = later->key();
  job->of_weight = gradient_place(groups.weight);
  job->place = at::sequence_number::peek();
  return GroupedProduct::apply(anchor.set_requires_grad(!x.requires_grad()), x,
                               groups.weight.detach(), job);
}

}  // namespace braid::kernels
