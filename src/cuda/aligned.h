// SPDX-License-Identifier: BSD-3-Clause
// Whether memory can be read several bytes at a time: parts of a flat buffer begin anywhere.
//
//   const bool wide = aligned(16, {x, y}, {row * element});
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace braid::cuda {

// All pointers (null is one) and all distances from row to row, in bytes, are multiples of `bytes`.
inline bool aligned(int64_t bytes, std::initializer_list<const void*> pointers,
                    std::initializer_list<int64_t> distances = {}) {
  const auto fits = [&](int64_t x) { return x % bytes == 0; };
  return std::all_of(pointers.begin(), pointers.end(),
                     [&](const void* p) { return fits(reinterpret_cast<int64_t>(p)); }) &&
         std::all_of(distances.begin(), distances.end(), fits);
}

}  // namespace braid::cuda
