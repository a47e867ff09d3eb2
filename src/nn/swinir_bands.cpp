// SPDX-License-Identifier: BSD-3-Clause
#include "swinir_bands.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>

#include "swinir_block.h"

namespace braid::nn {
namespace {

c10::ScalarType compute_of(const Conv2d& conv) { return conv.scope().build.precision.compute; }

kernels::Lanes channel_lanes(const Conv2d& conv, int64_t dim, bool wanted) {
  const int64_t channels = conv.weight.size(dim);
  return wanted ? width_lanes(conv.scope().build, channels) : kernels::Lanes{channels, channels};
}

at::Tensor in_lanes(const at::Tensor& x, const kernels::Lanes& lanes, c10::ScalarType compute) {
  if (x.size(1) == lanes.lanes) return x.to(compute);
  return kernels::pad_last(x.permute({0, 2, 3, 1}), lanes, compute).permute({0, 3, 1, 2});
}

}  // namespace

parallel::RowBands image_bands(int64_t rows, int64_t window, const Layout& layout) {
  const int64_t padded = (rows + window - 1) / window * window;
  return parallel::share_rows(padded, layout.context, window);
}

at::Tensor conv_on_band(const Conv2d& conv, const at::Tensor& x, ConvLanes lanes) {
  const Build& build = conv.scope().build;
  const comm::Group& bands = build.layout.context;
  const kernels::WeightLanes zeros = {.rows = channel_lanes(conv, 0, lanes.out),
                                      .columns = channel_lanes(conv, 1, lanes.in)};
  const int64_t side = conv.weight.size(2) / 2;
  const bool alone = bands.size() == 1 || side == 0;
  if (alone && !zeros.padded()) return conv.forward(x);
  const ModuleScope here(conv.path());
  const c10::ScalarType compute = compute_of(conv);
  const at::Tensor image = in_lanes(x, zeros.columns, compute),
                   weight = kernels::pad_lanes(conv.weight, zeros, compute),
                   bias = kernels::pad_last(conv.bias, zeros.rows, compute);
  if (alone) return at::conv2d(image, weight, bias, /*stride=*/1, side);
  return parallel::band_conv2d(image, weight, bias, bands);
}

at::Tensor conv_on_input(const Conv2d& conv, const at::Tensor& x, const parallel::RowBands& bands) {
  if (bands.rows.size() == 1) return conv.forward(x);
  const ModuleScope here(conv.path());
  const c10::ScalarType compute = compute_of(conv);
  const int64_t halo = conv.weight.size(2) / 2, side = conv.weight.size(3) / 2;
  const Range held = bands.with_halo(halo);  // the image ends where rows are missing
  const int64_t above = halo - (bands.first() - held.begin),
                below = halo - (held.end - bands.first() - bands.mine());
  const at::Tensor padded = above + below > 0 ? at::constant_pad_nd(x, {0, 0, above, below}) : x;
  return at::conv2d(padded.to(compute), conv.weight.to(compute), conv.bias.to(compute),
                    /*stride=*/1, at::IntArrayRef({0, side}));
}

}  // namespace braid::nn
