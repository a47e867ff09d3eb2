// SPDX-License-Identifier: BSD-3-Clause
#include "report/memory_points.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>

namespace braid::report {
namespace {

using PointWhat = MemoryChange::What;

size_t part_of(const std::vector<MemoryPoint>& points, size_t index, size_t parts) {
  const auto begin = static_cast<double>(points.front().nanoseconds);
  const double length = static_cast<double>(points.back().nanoseconds) - begin;
  if (length <= 0) return index * parts / points.size();
  const double at = (static_cast<double>(points[index].nanoseconds) - begin) / length;
  return std::min(parts - 1, static_cast<size_t>(at * static_cast<double>(parts)));
}

}  // namespace

int64_t total_of(const CategoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

std::vector<MemoryPoint> memory_points(const MemoryHistory& history) {
  std::vector<MemoryPoint> points(1);
  std::unordered_map<uint64_t, uint8_t> category;  // of each block alive
  points.reserve(history.changes.size() + 1);
  for (const MemoryChange& change : history.changes) {
    MemoryPoint now = points.back();
    now.nanoseconds = change.nanoseconds;
    if (change.what == PointWhat::changed || change.what == PointWhat::freed)
      now.bytes[category[change.block]] -= change.bytes;
    if (change.what != PointWhat::freed) {
      now.bytes[change.category] += change.bytes;
      category[change.block] = change.category;
    }
    if (change.what == PointWhat::before && points.size() == 1)
      points.front().bytes = now.bytes;
    else
      points.push_back(now);
  }
  return points;
}

size_t highest_point(const std::vector<MemoryPoint>& points) {
  const auto lower = [](const MemoryPoint& a, const MemoryPoint& b) {
    return total_of(a.bytes) < total_of(b.bytes);
  };
  return static_cast<size_t>(std::max_element(points.begin(), points.end(), lower) -
                             points.begin());
}

std::vector<MemoryPoint> thinned(const std::vector<MemoryPoint>& points, size_t parts) {
  if (points.size() <= 3 * parts) return points;
  std::vector<MemoryPoint> kept = {points.front()};
  for (size_t begin = 1; begin < points.size();) {
    size_t end = begin, low = begin, high = begin;
    for (; end < points.size() && part_of(points, end, parts) == part_of(points, begin, parts);
         ++end) {
      if (total_of(points[end].bytes) < total_of(points[low].bytes)) low = end;
      if (total_of(points[end].bytes) > total_of(points[high].bytes)) high = end;
    }
    for (const size_t index : std::set<size_t>{low, high, end - 1}) kept.push_back(points[index]);
    begin = end;
  }
  return kept;
}

PageJson points_json(const std::vector<MemoryPoint>& points) {
  PageJson times = PageJson::array(), values = PageJson::array();
  for (const MemoryPoint& point : points)
    times.push_back(rounded(static_cast<double>(point.nanoseconds) * 1e-6));
  for (size_t category = 0; category < memory_categories; ++category) {
    PageJson column = PageJson::array();
    for (const MemoryPoint& point : points) column.push_back(point.bytes[category]);
    values.push_back(std::move(column));
  }
  return {{"t", std::move(times)}, {"v", std::move(values)}, {"peak", highest_point(points)}};
}

}  // namespace braid::report
