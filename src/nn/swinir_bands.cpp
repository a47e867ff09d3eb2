// SPDX-License-Identifier: BSD-3-Clause
#include "swinir_bands.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>

namespace braid::nn {
namespace {

c10::ScalarType compute_of(const Conv2d& conv) { return conv.scope().build.precision.compute; }

}  // namespace

parallel::RowBands image_bands(int64_t rows, int64_t window, const Layout& layout) {
  const int64_t padded = (rows + window - 1) / window * window;
  return parallel::share_rows(padded, layout.context, window);
}

at::Tensor conv_on_band(const Conv2d& conv, const at::Tensor& x) {
  const comm::Group& bands = conv.scope().build.layout.context;
  if (bands.size() == 1 || conv.weight.size(2) == 1) return conv.forward(x);
  const ModuleScope here(conv.path());
  const c10::ScalarType compute = compute_of(conv);
  return parallel::band_conv2d(x.to(compute), conv.weight.to(compute), conv.bias.to(compute),
                               bands);
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
