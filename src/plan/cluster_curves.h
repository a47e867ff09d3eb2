// SPDX-License-Identifier: BSD-3-Clause
// Curves as lines of a cluster file: "gemm bf16 4096 768 3072 4.2e-05", the last number in seconds.
#pragma once
#include <string>
#include <vector>

#include "braid/plan/cluster.h"

namespace braid::plan {

std::vector<std::string> curve_lines(const std::vector<Curve>& curves);
std::vector<Curve> parse_curves(const std::vector<std::string>& lines);  // throws ConfigError

// Adds a point to the curve of that kernel and dtype; takes the place of one at the same sizes.
void add_point(std::vector<Curve>& curves, const std::string& kernel, const std::string& dtype,
               CurvePoint point);

}  // namespace braid::plan
