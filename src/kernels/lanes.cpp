// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/lanes.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

using torch::autograd::variable_list;

// lanes: unit and lanes of rows, unit and lanes of columns.
std::vector<int64_t> padded_sizes(const at::Tensor& x, at::IntArrayRef lanes) {  // [R, C, M]
  TORCH_CHECK(
      x.dim() == 3 && lanes.size() == 4 && x.size(0) % lanes[0] == 0 && x.size(1) % lanes[2] == 0,
      "a tensor of ", x.sizes(), " does not come in units of ", lanes);
  return {x.size(0) / lanes[0] * lanes[1], x.size(2), x.size(1) / lanes[2] * lanes[3]};
}
std::vector<int64_t> trimmed_sizes(const at::Tensor& x, at::IntArrayRef lanes) {  // [R', M, C']
  TORCH_CHECK(
      x.dim() == 3 && lanes.size() == 4 && x.size(0) % lanes[1] == 0 && x.size(2) % lanes[3] == 0,
      "a tensor of ", x.sizes(), " does not come in lanes of ", lanes);
  return {x.size(0) / lanes[1] * lanes[0], x.size(2) / lanes[3] * lanes[2], x.size(1)};
}

// The numbers of a padded tensor in the order of the one without zeros.
at::Tensor without_zeros(const at::Tensor& padded, at::IntArrayRef lanes) {
  const int64_t rows = padded.size(0) / lanes[1], columns = padded.size(2) / lanes[3];
  return padded.view({rows, lanes[1], padded.size(1), columns, lanes[3]})
      .narrow(1, 0, lanes[0])
      .narrow(4, 0, lanes[2])
      .permute({0, 1, 3, 4, 2});
}
at::Tensor by_units(const at::Tensor& x, at::IntArrayRef lanes) {
  return x.view({x.size(0) / lanes[0], lanes[0], x.size(1) / lanes[2], lanes[2], x.size(2)});
}

at::Tensor pad_lanes_by_ops(const at::Tensor& x, at::IntArrayRef lanes, c10::ScalarType dtype) {
  const at::Tensor out = at::zeros(padded_sizes(x, lanes), x.options().dtype(dtype));
  if (out.numel() > 0) without_zeros(out, lanes).copy_(by_units(x, lanes));
  return out;
}

at::Tensor trim_lanes_by_ops(const at::Tensor& x, at::IntArrayRef lanes, c10::ScalarType dtype,
                             MaybeTensor onto) {
  at::Tensor out = at::empty(trimmed_sizes(x, lanes), x.options().dtype(dtype));
  if (out.numel() > 0) by_units(out, lanes).copy_(without_zeros(x, lanes));
  if (onto) out.add_(*onto);
  return out;
}

at::Tensor pad_lanes_meta(const at::Tensor& x, at::IntArrayRef lanes, c10::ScalarType dtype) {
  return fresh(padded_sizes(x, lanes), x, dtype);
}

at::Tensor trim_lanes_meta(const at::Tensor& x, at::IntArrayRef lanes, c10::ScalarType dtype,
                           MaybeTensor) {
  return fresh(trimmed_sizes(x, lanes), x, dtype);
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def("pad_lanes(Tensor x, int[] lanes, ScalarType dtype) -> Tensor");
  library.def("trim_lanes(Tensor x, int[] lanes, ScalarType dtype, Tensor? onto) -> Tensor");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) {
  library.impl("pad_lanes", &pad_lanes_by_ops);
  library.impl("trim_lanes", &trim_lanes_by_ops);
}
TORCH_LIBRARY_IMPL(braid, Meta, library) {
  library.impl("pad_lanes", &pad_lanes_meta);
  library.impl("trim_lanes", &trim_lanes_meta);
}

at::Tensor run_pad(const at::Tensor& x, at::IntArrayRef lanes, c10::ScalarType dtype) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("braid::pad_lanes", "")
          .typed<at::Tensor(const at::Tensor&, at::IntArrayRef, c10::ScalarType)>();
  return op.call(x.detach(), lanes, dtype);
}

at::Tensor run_trim(const at::Tensor& x, at::IntArrayRef lanes, c10::ScalarType dtype,
                    MaybeTensor onto) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::trim_lanes", "")
                             .typed<at::Tensor(const at::Tensor&, at::IntArrayRef, c10::ScalarType,
                                               const std::optional<at::Tensor>&)>();
  return op.call(x.detach(), lanes, dtype, onto);
}

std::vector<int64_t> in_one_list(const WeightLanes& lanes) {
  return {lanes.rows.unit, lanes.rows.lanes, lanes.columns.unit, lanes.columns.lanes};
}

// [R, C] or [R, C, height, width] -> [R', C'] or channels-last [R', C', height, width].
at::Tensor pad_weight(const at::Tensor& x, at::IntArrayRef lanes, c10::ScalarType dtype) {
  const int64_t places = x.dim() == 4 ? x.size(2) * x.size(3) : 1;
  const at::Tensor out = run_pad(x.contiguous().view({x.size(0), x.size(1), places}), lanes, dtype);
  if (x.dim() == 2) return out.view({out.size(0), out.size(2)});
  return out.view({out.size(0), x.size(2), x.size(3), out.size(2)}).permute({0, 3, 1, 2});
}
at::Tensor trim_weight(const at::Tensor& x, at::IntArrayRef lanes, c10::ScalarType dtype) {
  const bool image = x.dim() == 4;
  const at::Tensor rows = image ? x.permute({0, 2, 3, 1}).contiguous() : x.contiguous();
  const int64_t places = image ? x.size(2) * x.size(3) : 1;
  const at::Tensor out = run_trim(rows.view({x.size(0), places, x.size(1)}), lanes, dtype, {});
  if (!image) return out.view({out.size(0), out.size(1)});
  return out.view({out.size(0), out.size(1), x.size(2), x.size(3)});
}

struct PadLanes : torch::autograd::Function<PadLanes> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::vector<int64_t>& lanes, c10::ScalarType dtype) {
    context->saved_data["lanes"] = lanes;
    context->saved_data["dtype"] = static_cast<int64_t>(x.scalar_type());
    return pad_weight(x, lanes, dtype);
  }
  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    const auto dtype = static_cast<c10::ScalarType>(context->saved_data["dtype"].toInt());
    return {trim_weight(grads[0], context->saved_data["lanes"].toIntVector(), dtype), {}, {}};
  }
};

// branch [R, C'] -> [R, C], with or without x [R, C] added.
struct TrimLanes : torch::autograd::Function<TrimLanes> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, MaybeTensor x,
                            const at::Tensor& branch, const std::vector<int64_t>& lanes,
                            c10::ScalarType dtype) {
    context->saved_data["lanes"] = lanes;
    context->saved_data["dtype"] = static_cast<int64_t>(branch.scalar_type());
    context->saved_data["added"] = x.has_value();
    const at::Tensor rows = branch.contiguous();
    const std::optional<at::Tensor> onto =
        x ? std::optional(x->detach().contiguous().unsqueeze(2)) : std::nullopt;
    return run_trim(rows.unsqueeze(1), lanes, dtype, onto).squeeze(2);
  }
  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    const auto dtype = static_cast<c10::ScalarType>(context->saved_data["dtype"].toInt());
    const at::Tensor grad = grads[0].contiguous();
    const at::Tensor of_branch =
        run_pad(grad.unsqueeze(2), context->saved_data["lanes"].toIntVector(), dtype).squeeze(1);
    return {context->saved_data["added"].toBool() ? grad : at::Tensor(), of_branch, {}, {}};
  }
};

bool wants_lanes(c10::ScalarType compute, c10::DeviceType device) {
  return device == c10::kCUDA && c10::elementSize(compute) == 2;
}

Lanes next_multiple(int64_t size, int64_t aligned, int64_t multiple) {
  return {size, size % aligned == 0 ? size : rounded_up(size, multiple)};
}

at::Tensor as_table(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor with_last(const at::Tensor& table, const at::Tensor& like) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes.back() = table.size(1);
  return table.view(sizes);
}

}  // namespace

Lanes lanes_of_width(int64_t width, c10::ScalarType compute, c10::DeviceType device) {
  if (!wants_lanes(compute, device)) return {width, width};
  return next_multiple(width, 8, 64);
}

Lanes lanes_of_head(int64_t head, c10::ScalarType compute, c10::DeviceType device) {
  if (!wants_lanes(compute, device)) return {head, head};
  return next_multiple(head, 16, 16);
}

at::Tensor pad_lanes(const at::Tensor& weight, const WeightLanes& lanes, c10::ScalarType dtype) {
  if (!lanes.padded()) return weight.to(dtype);
  return PadLanes::apply(weight, in_one_list(lanes), dtype);
}

at::Tensor pad_last(const at::Tensor& x, const Lanes& lanes, c10::ScalarType dtype) {
  if (!lanes.padded()) return x.to(dtype);
  return with_last(PadLanes::apply(as_table(x), in_one_list({.columns = lanes}), dtype), x);
}

at::Tensor trim_last(const at::Tensor& x, const Lanes& lanes, c10::ScalarType dtype) {
  if (!lanes.padded()) return x.to(dtype);
  const at::Tensor table = TrimLanes::apply(std::optional<at::Tensor>(), as_table(x),
                                            in_one_list({.columns = lanes}), dtype);
  return with_last(table, x);
}

at::Tensor add_trimmed(const at::Tensor& x, const at::Tensor& branch) {
  const Lanes lanes = {x.size(-1), branch.size(-1)};
  if (!lanes.padded()) return at::add(x, branch);
  const at::Tensor table = TrimLanes::apply(std::optional(as_table(x)), as_table(branch),
                                            in_one_list({.columns = lanes}), x.scalar_type());
  return table.view(x.sizes());
}

}  // namespace braid::kernels
