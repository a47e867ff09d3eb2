// SPDX-License-Identifier: BSD-3-Clause
// How much memory this process takes.
//
//   int64_t bytes = memory::peak_bytes(device);   // peak RSS on the CPU, peak allocated on CUDA
//   memory::reset_peak(device);
#pragma once
#include <cstdint>

#include <c10/core/Device.h>

namespace braid::memory {

int64_t current_rss();  // resident now, bytes; 0 where the system does not tell
int64_t peak_rss();     // most that was ever resident
int64_t peak_bytes(c10::Device device);
// Starts a new peak on a CUDA device. The peak RSS is of the whole life of the process and stays.
void reset_peak(c10::Device device);

}  // namespace braid::memory
