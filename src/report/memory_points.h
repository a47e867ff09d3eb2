// SPDX-License-Identifier: BSD-3-Clause
// Points of a memory timeline: the highest of them, and few enough of them to draw.
#pragma once
#include "braid/report/memory_files.h"
#include "report/page_json.h"

namespace braid::report {

int64_t total_of(const CategoryBytes& bytes);
// Index of the first point with the most bytes; 0 without points.
size_t highest_point(const std::vector<MemoryPoint>& points);

// Of each of `parts` equal stretches of time the lowest, the highest and the last point, so no peak
// gets lost; all, if they are few.
std::vector<MemoryPoint> thinned(const std::vector<MemoryPoint>& points, size_t parts);

// {"t": [milliseconds], "v": [[bytes of the first category], ...], "peak": index}
PageJson points_json(const std::vector<MemoryPoint>& points);

}  // namespace braid::report
