// SPDX-License-Identifier: BSD-3-Clause
// Bands of rows of SwinIR's images, one a rank of the context axis: whole windows each.
//
//   parallel::RowBands bands = image_bands(360, 8, layout);
//   shallow = conv_on_input(*conv_first, x, bands);   // x: the band with its halo, from the input
//   y = conv_on_band(*conv, features);                // halo rows come from the neighbours
#pragma once
#include "braid/nn/layers.h"
#include "braid/parallel/halo.h"

namespace braid::nn {

// Of an image of so many rows once it is padded to whole windows. Throws ConfigError if there are
// fewer of them than ranks.
parallel::RowBands image_bands(int64_t rows, int64_t window, const Layout& layout);

// Which channels get lanes (kernels/lanes.h), where dtype and device want them. x may have those of
// the input already.
struct ConvLanes {
  bool in = false, out = false;
};

// The convolution of the image that all bands make up, x [B, C, rows, columns].
at::Tensor conv_on_band(const Conv2d& conv, const at::Tensor& x, ConvLanes lanes = {});

// The same of a band that was taken with its halo: nobody needs to send it.
at::Tensor conv_on_input(const Conv2d& conv, const at::Tensor& x, const parallel::RowBands& bands);

}  // namespace braid::nn
