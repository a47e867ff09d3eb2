// SPDX-License-Identifier: BSD-3-Clause
#include "plan/cost_roofline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <c10/core/ScalarType.h>

namespace braid::plan {
namespace {

// A kernel that does nothing still takes this long from its first to its last block.
constexpr double kernel_floor = 2e-6;

// Tiles of the output that a multiprocessor works on, and how much of the best rate each reaches:
// a smaller one reads its factors more often.
struct Tile {
  double rows, columns, rate;
};
constexpr std::array<Tile, 5> tiles = {
    {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.95}, {128, 64, 0.8}, {64, 64, 0.6}}};
constexpr std::array<double, 6> splits = {1, 2, 4, 8, 16, 32};  // of k

// Filling the pipeline and writing the tile cost as much as so many steps of k.
constexpr double tile_start = 64;

double up(double value) { return std::ceil(value - 1e-9); }

}  // namespace

double Roofline::stream(double bytes, int kernels) const {
  return kernels * kernel_floor + bytes / (gpu_.bandwidth * stream_share());
}

// The best choice of tile and split of k, as cuBLAS's heuristics look for it: work comes in waves
// of one tile a multiprocessor, edges are computed and thrown away, and parts of a split k are
// written and added up in fp32.
double Roofline::tiles_seconds(const Product& p, double peak) const {
  const double rate = peak * gemm_share();
  const double units = static_cast<double>(gpu_.multiprocessors);
  if (units == 0) return 2 * p.batch * p.m * p.n * (p.k + tile_start) / rate;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles)
    for (const double split : splits) {
      if (split > 1 && p.k / split < 4 * tile_start) break;
      const double count = p.batch * up(p.m / tile.rows) * up(p.n / tile.columns) * split;
      // Two small tiles share a multiprocessor; a large number of tiles evens out.
      const double waves = count <= 8 * units ? up(count / units) : count / units + 0.5;
      const double flops =
          2 * waves * units * tile.rows * tile.columns * (p.k / split + tile_start);
      const double parts = split > 1 ? 2 * split * p.batch * p.m * p.n * 4 : 0;
      best = std::min(best, flops / (rate * tile.rate) + parts / (gpu_.bandwidth * stream_share()));
    }
  return best;
}

double Roofline::product(const Product& p, c10::ScalarType dtype, double slower) const {
  const double element = static_cast<double>(c10::elementSize(dtype));
  const double bytes = p.batch * (p.m * p.k + p.k * p.n + p.m * p.n) * element;
  const double compute = slower * tiles_seconds(p, peak(dtype));
  return kernel_floor + std::max(compute, bytes / (gpu_.bandwidth * stream_share()));
}

// In fp32 attention multiplies its factors in two parts each, on tensor cores, whether products may
// or not: three products in TF32 and the work of splitting.
double Roofline::attention_peak(c10::ScalarType dtype) const {
  const auto tf32 = gpu_.peak.find("tf32");
  return dtype == c10::kFloat && tf32 != gpu_.peak.end() ? tf32->second / 4 : peak(dtype);
}

// Two products of the scores' size forward, five backward (scores are computed again). Blocks of
// 128 queries; heads below 64 do not fill the tensor cores, the kernel works on whole 32s of them.
double Roofline::attention(const Scores& s, c10::ScalarType dtype, bool backward,
                           bool flash) const {
  const double half = s.causal ? 0.5 * (1 + 128 / std::max(s.queries, 128.0)) : 1;
  const double head = 32 * up(s.head / 32);
  const double products = backward ? 5 : 2;
  const double flops = products * 2 * s.groups * s.queries * s.keys * head * half;
  // Exponentials run beside the products and take as long as a head of about 32 would.
  const double rate = head / (head + 32);
  const double older = flash && gpu_.older_share > 0 ? gpu_.older_share : 1;
  const double compute =
      flops / (attention_peak(dtype) * older * gemm_share() * rate * (backward ? 0.85 : 1.0));
  const double element = static_cast<double>(c10::elementSize(dtype));
  const double bytes = s.groups * (s.queries + s.keys) * s.head * element * (backward ? 4 : 2);
  return (backward ? 3 : 1) * kernel_floor +
         std::max(compute, bytes / (gpu_.bandwidth * stream_share()));
}

bool Roofline::computes(double flops, double bytes, c10::ScalarType dtype) const {
  if (flops == 0) return false;
  return flops / (peak(dtype) * gemm_share()) > bytes / (gpu_.bandwidth * stream_share());
}

}  // namespace braid::plan
