// SPDX-License-Identifier: BSD-3-Clause
#include "cli/predict_input.h"

#include <ATen/ops/isfinite.h>
#include <fmt/format.h>

#include "braid/data/arrays.h"
#include "braid/train/scoring.h"

namespace braid::cli {
namespace {

at::Tensor read_fields(const PredictArguments& arguments) {
  // A file of years is larger than memory: only the frame is read.
  at::Tensor frame = data::read_array(
      arguments.input, {.dataset = arguments.dataset, .frame = arguments.frame.value_or(0)});
  if (frame.dim() == 3) return frame;
  if (frame.dim() == 2 && !arguments.frame)
    return data::read_array(arguments.input, {.dataset = arguments.dataset});
  throw DataError(
      {.what = fmt::format("{} has {} dimensions{}", arguments.input, frame.dim() + 1,
                           arguments.frame ? ", and --frame was given" : ""),
       .why = "[channels, rows, columns] or [frames, channels, rows, columns] is needed",
       .fix = "reshape it"});
}

void expect_channels(const PredictArguments& arguments, const at::Tensor& field, int64_t channels,
                     bool more) {
  if (field.size(0) == channels || (more && field.size(0) > channels)) return;
  throw DataError({.what = fmt::format("{} has {} channels, the model takes {}", arguments.input,
                                       field.size(0), channels),
                   .why = "each channel of the model needs its field",
                   .fix = "give a file with the channels that the model was trained on"});
}

void expect_size(const PredictArguments& arguments, const at::Tensor& field, InputSize size) {
  if (field.size(1) >= size.rows && field.size(2) >= size.columns) return;
  throw DataError(
      {.what = fmt::format("{} is {} x {}, the model takes {} x {}", arguments.input, field.size(1),
                           field.size(2), size.rows, size.columns),
       .why = "a larger field is cropped from the top left, a smaller one cannot be used",
       .fix = "give a field of the size that the model was trained on"});
}

// One missing value makes all values of the prediction NaN.
void expect_finite(const PredictArguments& arguments, const PredictInput& input) {
  const at::Tensor bad = at::isfinite(input.fields).logical_not().flatten(1).sum(1);  // [channels]
  for (int64_t channel = 0; channel < bad.size(0); ++channel) {
    const auto count = bad[channel].item<int64_t>();
    if (count == 0) continue;
    throw DataError(
        {.what = fmt::format("{}: {} of {} values of {} in frame {} are NaN or infinite",
                             arguments.input, count, input.fields[channel].numel(),
                             input.info.names[static_cast<size_t>(channel)],
                             arguments.frame.value_or(0)),
         .why = "the model would turn them into a prediction without a single number",
         .fix = "fill the missing values first, or choose another --frame"});
  }
}

void cut(PredictInput& input, InputSize size) {
  input.fields = input.fields.narrow(0, 0, size.channels);
  if (size.rows == 0) return;
  input.fields = input.fields.narrow(1, 0, size.rows).narrow(2, 0, size.columns);
  auto& info = input.info;
  if (!info.latitudes.empty()) info.latitudes.resize(static_cast<size_t>(size.rows));
  if (!info.longitudes.empty()) info.longitudes.resize(static_cast<size_t>(size.columns));
}

}  // namespace

PredictInput read_input(const PredictArguments& arguments, const train::RunOptions& options,
                        InputSize size) {
  if (arguments.input.empty())
    throw ConfigError({.what = "there is no --input",
                       .why = "the model takes a field of [channels, rows, columns]",
                       .fix = "--input file.npy, or --input file.h5 --frame 12"});
  PredictInput input{.fields = read_fields(arguments)};
  expect_channels(arguments, input.fields, size.channels, /*more=*/size.rows > 0);
  expect_size(arguments, input.fields, size);
  cut(input, size);
  input.info.names = train::channel_names(options.data, input.info.names, size.channels);
  expect_finite(arguments, input);
  return input;
}

}  // namespace braid::cli
