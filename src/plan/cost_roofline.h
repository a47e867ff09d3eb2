// SPDX-License-Identifier: BSD-3-Clause
// Seconds of kernels from what a GPU's data sheet says: the shape of their efficiency, which the
// two shares of a GPU scale and measured curves correct.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "braid/plan/cluster.h"

namespace braid::plan {

// A product of [m, k] and [k, n], `batch` times.
struct Product {
  double m = 1, n = 1, k = 1;
  double batch = 1;
};

// Attention of q [groups, queries, head] over keys [groups, keys, head].
struct Scores {
  double groups = 1, queries = 1, keys = 1, head = 1;
  bool causal = false;
};

class Roofline {
 public:
  Roofline(const Gpu& gpu, bool tf32) : gpu_(gpu), tf32_(tf32) {}

  double stream(double bytes, int kernels = 1) const;
  // `slower`: so many times, where it computes.
  double product(const Product& product, c10::ScalarType dtype, double slower = 1) const;
  double attention(const Scores& scores, c10::ScalarType dtype, bool backward, bool flash) const;
  // Compute-bound at these sizes?
  bool computes(double flops, double bytes, c10::ScalarType dtype) const;
  double peak(c10::ScalarType dtype) const { return gpu_.peak_of(dtype, tf32_); }

 private:
  double gemm_share() const { return gpu_.gemm_share > 0 ? gpu_.gemm_share : 0.7; }
  double stream_share() const { return gpu_.stream_share > 0 ? gpu_.stream_share : 0.85; }
  double attention_peak(c10::ScalarType dtype) const;
  double tiles_seconds(const Product& product, double peak) const;

  const Gpu& gpu_;
  bool tf32_;
};

}  // namespace braid::plan
