// SPDX-License-Identifier: BSD-3-Clause
// Where the elements of a part stand in the whole batch, in host code and in CUDA kernels: a small
// value that a kernel takes by copy.
//
//   const DropPlaces places = drop_places(like.sizes(), whole, held, first);
//   int64_t place = places.of(i);   // of element i in row-major order
#pragma once
#include <cstdint>

#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include "braid/core/anywhere.h"

namespace braid::kernels {

constexpr int most_drop_dims = 6, most_drop_ranges = 8;

// One dimension: `size` indices here, and where they begin to stand elsewhere in the whole.
struct DropSide {
  int64_t size = 1, stride = 1;           // stride: of the whole
  int ranges = 1;                         // range i begins at index from[i] of the part,
  int64_t from[most_drop_ranges] = {0};   // ascending,
  int64_t shift[most_drop_ranges] = {0};  // which is index from[i] + shift[i] of the whole
};

struct DropPlaces {
  int dims = 0;
  int64_t first = 0;
  DropSide sides[most_drop_dims];

  BRAID_ANYWHERE int64_t of(int64_t element) const {
    int64_t place = first;
    for (int dim = dims - 1; dim >= 0; --dim) {
      const DropSide& side = sides[dim];
      const int64_t index = element % side.size;
      int range = 0;
      while (range + 1 < side.ranges && index >= side.from[range + 1]) ++range;
      place += (index + side.shift[range]) * side.stride;
      element /= side.size;
    }
    return place;
  }
};

// held: dim, begin, end of each range; a dimension without one is whole.
inline DropPlaces drop_places(c10::IntArrayRef sizes, c10::IntArrayRef whole, c10::IntArrayRef held,
                              int64_t first) {
  DropPlaces places;
  places.dims = static_cast<int>(sizes.size());
  places.first = first;
  TORCH_CHECK(places.dims <= most_drop_dims, "a dropout mask has more than 6 dimensions");
  int64_t stride = 1;
  for (int dim = places.dims - 1; dim >= 0; --dim) {
    DropSide& side = places.sides[dim];
    side.size = sizes[dim];
    side.stride = stride;
    stride *= whole[dim];
    int64_t reached = 0;
    int count = 0;
    for (size_t i = 0; i + 2 < held.size(); i += 3) {
      if (held[i] != dim) continue;
      TORCH_CHECK(count < most_drop_ranges, "a rank holds more than 8 ranges of a dimension");
      side.from[count] = reached;
      side.shift[count] = held[i + 1] - reached;
      reached += held[i + 2] - held[i + 1];
      ++count;
    }
    TORCH_CHECK(count == 0 || reached == side.size, "ranges of ", reached, " indices of ",
                side.size);
    if (count > 0) side.ranges = count;
  }
  return places;
}

}  // namespace braid::kernels
