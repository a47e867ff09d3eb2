// SPDX-License-Identifier: BSD-3-Clause
// What starting operators costs the host, from steps of models so small that the device waits.
#pragma once
#include <ATen/core/Tensor.h>

#include "braid/plan/cluster.h"

namespace braid::plan {

struct LaunchCosts {
  double kernel = 0, view = 0;  // seconds
};
LaunchCosts measure_launch(c10::Device device, bool small);

// Seconds = kernel * kernels + view * views, each not below zero, by least squares.
struct LaunchRow {
  double kernels = 0, views = 0, seconds = 0;
};
LaunchCosts fit_launch(const std::vector<LaunchRow>& rows);

// Bytes/s between page-locked memory and the device; 0 on a machine without one.
double measure_copies(c10::Device device);

}  // namespace braid::plan
