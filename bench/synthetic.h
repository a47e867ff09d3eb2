// SPDX-License-Identifier: BSD-3-Clause
// Made-up batches that lie on the device, the same numbers on both sides of a comparison: functions
// of an integer hash of sample, place and salt, so that nothing has to be handed over. They can be
// learned and never repeat: text by a noisy rule, fields that the wind carries, images and their
// means. bench/peers/batches.py is the same in Python.
//
//   data::Batch batch = bench::synthetic_batch(options, /*number=*/0, {c10::kCUDA, 0});
#pragma once
#include <cstdint>

#include <c10/core/Device.h>

#include "braid/data/loader.h"
#include "braid/train/options.h"

namespace braid::bench {

// Another batch for each number.
data::Batch synthetic_batch(const train::RunOptions& options, int64_t number, c10::Device device);
void fill_batch(data::Batch& batch, const train::RunOptions& options, int64_t number);  // in place

}  // namespace braid::bench
