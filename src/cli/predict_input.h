// SPDX-License-Identifier: BSD-3-Clause
// The fields that `braid predict` starts from, with what their file says about them.
#pragma once
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "braid/data/field_info.h"
#include "cli/predict.h"

namespace braid::cli {

// Times as the file has them: numbers in `units` since an epoch, by `calendar`.
struct FieldTime {
  double at = 0;        // of the frame
  double interval = 0;  // between two frames of the file
  std::string units, calendar;
};

struct PredictInput {
  at::Tensor fields;  // [channels, rows, columns], physical units
  data::FieldInfo info = {};
  std::optional<FieldTime> time = {};  // empty: the file does not say
};

// The first `channels` of the frame, cut to [rows, columns] from the top left; rows of 0: as it is.
struct InputSize {
  int64_t channels = 0, rows = 0, columns = 0;
};

// Throws DataError: wrong shape, values that are not finite. Names are complete: data.names, else
// those of the file, else c0, c1, ...
PredictInput read_input(const PredictArguments& arguments, const train::RunOptions& options,
                        InputSize size);

}  // namespace braid::cli
