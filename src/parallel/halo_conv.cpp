// SPDX-License-Identifier: BSD-3-Clause
// A convolution is a sum: the band is convolved with zeros around it, and what the rows of the
// neighbours add to its first and last rows comes on top. So the band is never copied, the kernel
// is that of one process, and only the halo rows are kept for the backward pass besides.
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "braid/core/error.h"
#include "braid/parallel/halo.h"
#include "parallel/halo_exchange.h"

namespace braid::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t row_dim = 2;

// Sizes of a convolution that keeps the size of its image.
struct BandConv {
  int64_t halo, side, groups;  // side: padding of columns

  BandConv(const at::Tensor& band, const at::Tensor& weight)
      : halo(weight.size(2) / 2), side(weight.size(3) / 2), groups(band.size(1) / weight.size(1)) {}

  // The rows of the kernel that reach from the first or last row into the halo.
  at::Tensor above(const at::Tensor& weight) const { return weight.narrow(row_dim, 0, halo); }
  at::Tensor below(const at::Tensor& weight) const {
    return weight.narrow(row_dim, halo + 1, halo);
  }

  at::Tensor run(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                 int64_t rows_around) const {
    return at::conv2d(x, weight, bias, 1, {rows_around, side}, 1, groups);
  }
  // With zeros on the far side of the halo; of 2 halo - 1 rows those are wanted that lie in the
  // band.
  at::Tensor from_above(const at::Tensor& halo_rows, const at::Tensor& weight) const {
    return run(halo_rows, above(weight), {}, halo - 1).narrow(row_dim, halo - 1, halo);
  }
  at::Tensor from_below(const at::Tensor& halo_rows, const at::Tensor& weight) const {
    return run(halo_rows, below(weight), {}, halo - 1).narrow(row_dim, 0, halo);
  }

  std::tuple<at::Tensor, at::Tensor, at::Tensor> back(const at::Tensor& grad, const at::Tensor& x,
                                                      const at::Tensor& weight, int64_t rows_around,
                                                      std::array<bool, 3> wanted) const {
    return at::convolution_backward(grad, x, weight, at::IntArrayRef{weight.size(0)}, {1, 1},
                                    {rows_around, side}, {1, 1}, false, {0, 0}, groups, wanted);
  }
  // The gradient of the convolved halo, as large as run() made it.
  at::Tensor spread(const at::Tensor& grad, int64_t first) const {
    if (halo == 1) return grad;
    std::vector<int64_t> sizes = grad.sizes().vec();
    sizes[row_dim] = 2 * halo - 1;
    const at::Tensor whole = grad.new_zeros(sizes);
    whole.narrow(row_dim, first, halo).copy_(grad);
    return whole;
  }
};

struct BandConvFunction : torch::autograd::Function<BandConvFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& band,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const comm::Group& group) {
    const BandConv conv(band, weight);
    EdgeExchange exchange(group, edges_of(band, conv.halo, row_dim));
    const at::Tensor out = conv.run(band, weight, bias, conv.halo);
    const RowEdges halo = exchange.wait();
    RowEdges more;
    if (halo.above.defined()) more.above = conv.from_above(halo.above, weight);
    if (halo.below.defined()) more.below = conv.from_below(halo.below, weight);
    add_to_edges(out, more, row_dim);
    context->save_for_backward({band, weight, halo.above, halo.below});
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<HeldGroup>(group));
    context->saved_data["wanted"] =
        c10::List<bool>({band.requires_grad(), weight.requires_grad(), bias.requires_grad()});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &grad = grads[0], &band = saved[0], &weight = saved[1];
    const RowEdges halo = {saved[2], saved[3]};
    const auto wanted = context->saved_data["wanted"].toBoolList();
    const auto held = context->saved_data["group"].toCapsule();
    const BandConv conv(band, weight);
    RowEdges of_halo;  // its gradient goes first: it is under way while the band's is computed
    if (wanted[0]) of_halo = halo_gradients(conv, grad, weight, halo);
    EdgeExchange exchange(wanted[0] ? static_cast<HeldGroup*>(held.get())->group : comm::Group(),
                          of_halo);
    auto [of_band, of_weight, of_bias] =
        conv.back(grad, band, weight, conv.halo, {wanted[0], wanted[1], wanted[2]});
    if (wanted[1]) add_halo_part(conv, of_weight, grad, weight, halo);
    if (wanted[0]) add_to_edges(of_band, exchange.wait(), row_dim);
    return {of_band, of_weight, of_bias, at::Tensor()};
  }

 private:
  static RowEdges grads_above_below(const BandConv& conv, const at::Tensor& grad) {
    const RowEdges edges = edges_of(grad, conv.halo, row_dim);
    return {conv.spread(edges.above, conv.halo - 1), conv.spread(edges.below, 0)};
  }

  static RowEdges halo_gradients(const BandConv& conv, const at::Tensor& grad,
                                 const at::Tensor& weight, const RowEdges& halo) {
    const RowEdges edges = grads_above_below(conv, grad);
    const std::array<bool, 3> input = {true, false, false};
    RowEdges result;
    if (halo.above.defined())
      result.above =
          std::get<0>(conv.back(edges.above, halo.above, conv.above(weight), conv.halo - 1, input));
    if (halo.below.defined())
      result.below =
          std::get<0>(conv.back(edges.below, halo.below, conv.below(weight), conv.halo - 1, input));
    return result;
  }

  static void add_halo_part(const BandConv& conv, const at::Tensor& of_weight,
                            const at::Tensor& grad, const at::Tensor& weight,
                            const RowEdges& halo) {
    const RowEdges edges = grads_above_below(conv, grad);
    const std::array<bool, 3> kernel = {false, true, false};
    if (halo.above.defined())
      conv.above(of_weight).add_(std::get<1>(
          conv.back(edges.above, halo.above, conv.above(weight), conv.halo - 1, kernel)));
    if (halo.below.defined())
      conv.below(of_weight).add_(std::get<1>(
          conv.back(edges.below, halo.below, conv.below(weight), conv.halo - 1, kernel)));
  }
};

void check_kernel(const at::Tensor& weight) {
  if (weight.dim() == 4 && weight.size(2) % 2 == 1 && weight.size(3) % 2 == 1) return;
  throw InternalError(
      {.what = fmt::format("band_conv2d with a weight of {}", c10::str(weight.sizes())),
       .why = "only a kernel [out, in, odd, odd] can keep the size of an image",
       .fix = "use parallel::with_halo and at::conv2d for other kernels"});
}

}  // namespace

at::Tensor band_conv2d(const at::Tensor& band, const at::Tensor& weight, const at::Tensor& bias,
                       const comm::Group& group) {
  check_kernel(weight);
  const BandConv conv(band, weight);
  if (group.size() == 1 || conv.halo == 0) return conv.run(band, weight, bias, conv.halo);
  check_thick(band, conv.halo, row_dim, group);
  // A node of autograd takes no undefined tensor.
  return BandConvFunction::apply(band, weight,
                                 bias.defined() ? bias : weight.new_zeros({weight.size(0)}), group);
}

}  // namespace braid::parallel
