// SPDX-License-Identifier: BSD-3-Clause
#include "cli/predict_input.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "braid/data/arrays.h"
#include "braid/train/predict.h"
#include "braid/train/scoring.h"

namespace braid::cli {
namespace {

PredictInput read_plain(const PredictArguments& arguments, const std::string& dataset) {
  // A file of years is larger than memory: only the frame is read.
  at::Tensor frame =
      data::read_array(arguments.input, {.dataset = dataset, .frame = arguments.frame.value_or(0)});
  if (frame.dim() == 3) return {.fields = frame};
  if (frame.dim() == 2 && !arguments.frame)
    return {.fields = data::read_array(arguments.input, {.dataset = dataset})};
  throw DataError(
      {.what = fmt::format("{} has {} dimensions{}", arguments.input, frame.dim() + 1,
                           arguments.frame ? ", and --frame was given" : ""),
       .why = "[channels, rows, columns] or [frames, channels, rows, columns] is needed",
       .fix = "reshape it"});
}

// Time from this frame to the next one, or from the one before to the last one.
std::optional<double> interval_at(const std::string& file, const data::FieldNames& names,
                                  const data::FieldFrame& now, int64_t frame) {
  if (now.frames < 2) return std::nullopt;
  const int64_t other = frame + 1 < now.frames ? frame + 1 : frame - 1;
  const std::optional<double> time = data::read_frame(file, names, other).time;
  if (!time) return std::nullopt;
  return other > frame ? *time - *now.time : *now.time - *time;
}

// A frame as the model saw it in training: variables, levels, coordinates and time by their
// meaning.
PredictInput read_variables(const PredictArguments& arguments, const data::DataOptions& options) {
  const data::FieldNames names{
      .dataset = options.dataset, .variables = options.variables, .levels = options.levels};
  const int64_t frame = arguments.frame.value_or(0);
  const data::FieldFrame now = data::read_frame(arguments.input, names, frame);
  PredictInput input{.fields = now.values, .info = now.info};
  if (now.time)
    input.time = FieldTime{.at = *now.time,
                           .interval = interval_at(arguments.input, names, now, frame),
                           .units = now.time_units,
                           .calendar = now.calendar};
  return input;
}

PredictInput read_fields(const PredictArguments& arguments, const data::DataOptions& options) {
  const bool by_variables = !options.variables.empty() && !arguments.dataset;
  if (by_variables && data::is_field_file(arguments.input))
    return read_variables(arguments, options);
  return read_plain(arguments, arguments.dataset.value_or(options.dataset));
}

// As in training with data.missing: fill.
void fill_missing(PredictInput& input, const data::DataOptions& options) {
  const train::Normalisation normal = train::normalisation_of(options, input.fields.size(0));
  if (options.missing != data::Missing::fill || !normal.means.defined()) return;
  input.fields = at::where(input.fields.isnan(), normal.means, input.fields);
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
         .fix = "fill the missing values first (a model trained with data.missing=fill takes the "
                "mean of the channel for them), or choose another --frame"});
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
  PredictInput input = read_fields(arguments, options.data);
  expect_channels(arguments, input.fields, size.channels, /*more=*/size.rows > 0);
  expect_size(arguments, input.fields, size);
  cut(input, size);
  input.info.names = train::channel_names(options.data, input.info.names, size.channels);
  fill_missing(input, options.data);
  expect_finite(arguments, input);
  return input;
}

}  // namespace braid::cli
