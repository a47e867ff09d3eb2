// SPDX-License-Identifier: BSD-3-Clause
// Images larger than one GPU: each rank holds a band of rows, and neighbours exchange the rows that
// convolutions and shifted windows see across the seams. Autograd goes through all of it.
//
//   parallel::RowBands bands = parallel::share_rows(x.size(2), ranks);
//   at::Tensor y = parallel::band_conv2d(parallel::take_rows(x, bands, 2), weight, bias, ranks);
//   at::Tensor image = parallel::join_rows(y, bands, ranks, 2);   // as conv2d(x, weight, bias)
//
// In a group of one rank each does what the function of LibTorch does and talks to nobody.
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"
#include "braid/core/param.h"

namespace braid::parallel {

// The rows of an image, rank after rank from the top.
struct RowBands {
  std::vector<int64_t> rows;  // of each rank
  int rank = 0;

  int64_t mine() const { return rows.at(static_cast<size_t>(rank)); }
  int64_t whole() const;
  int64_t first() const;                      // row of the image that this rank's band begins with
  Range with_halo(int64_t halo) const;        // rows of the image, as far as it goes
  RowBands enlarged(int64_t scale) const;     // of the image made larger
  RowBands cut_to(int64_t image_rows) const;  // without rows below an image of so many
  bool operator==(const RowBands&) const = default;
};

// As even as it goes; `unit` rows (a window) stay together. Throws ConfigError if a rank would have
// none.
RowBands share_rows(int64_t rows, const comm::Group& group, int64_t unit = 1);

at::Tensor take_rows(const at::Tensor& whole, const RowBands& bands, int64_t dim);  // a view
// The rows of all ranks, on every rank; backward: the own ones.
at::Tensor join_rows(const at::Tensor& band, const RowBands& bands, const comm::Group& group,
                     int64_t dim);

// The band with `halo` rows of the neighbours above and below it, zeros beyond the image. Backward:
// gradients of halo rows go back to the neighbours, who add them. Every band has `halo` rows.
at::Tensor with_halo(const at::Tensor& band, const comm::Group& group, int64_t halo, int64_t dim);

// conv2d of the whole image with stride 1 and the zero padding that keeps its size. The band is
// convolved while the halo rows are under way; backward likewise. band [B, C, rows, columns],
// weight [out, C / groups, odd, odd]; bias may be undefined.
at::Tensor band_conv2d(const at::Tensor& band, const at::Tensor& weight, const at::Tensor& bias,
                       const comm::Group& group);

// at::roll of the whole image, whose dimension dims[0] is spread over the ranks: as many rows as
// that shift says go round to the next rank. Backward: the way back.
at::Tensor band_roll(const at::Tensor& band, const std::vector<int64_t>& shifts,
                     const std::vector<int64_t>& dims, const comm::Group& group);

}  // namespace braid::parallel
