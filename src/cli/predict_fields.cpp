// SPDX-License-Identifier: BSD-3-Clause
// Forecasts and finer pictures: fields in, fields and a PNG out.
#include <fmt/format.h>

#include <algorithm>

#include "braid/core/fs.h"
#include "braid/data/arrays.h"
#include "braid/data/cf_file.h"
#include "braid/report/png.h"
#include "braid/train/maps.h"
#include "braid/train/predict.h"
#include "braid/train/scoring.h"
#include "cli/predict_input.h"

namespace braid::cli {
namespace {

bool is_netcdf_name(const std::filesystem::path& file) { return file.extension() == ".nc"; }

// Before the model is run.
void expect_known_ending(const PredictArguments& arguments) {
  if (data::is_array_name(arguments.out) || is_netcdf_name(arguments.out)) return;
  throw ConfigError(
      {.what = fmt::format("--out {}", arguments.out),
       .why = "a prediction can be written as .npy, .h5, .hdf5 or .nc (netCDF-4)",
       .fix = fmt::format("--out {}",
                          std::filesystem::path(arguments.out).replace_extension(".nc").string())});
}

void expect_steps(const PredictArguments& arguments, const nn::VitOptions& model) {
  if (arguments.steps == 1 || model.channels_in == model.channels_out) return;
  throw ConfigError({.what = fmt::format("--steps {} with {} channels in and {} out",
                                         arguments.steps, model.channels_in, model.channels_out),
                     .why = "each output is the next input",
                     .fix = "--steps 1"});
}

void write_picture(const std::string& out, const PictureRecord& picture) {
  const std::string file = std::filesystem::path(out).replace_extension(".png").string();
  write_atomic(file, report::png_of(picture));
  fmt::print("wrote {} and {}\n", out, file);
}

// States one after the other; the first lies `frames` frames after the input.
data::CfFields described(const PredictInput& input, const at::Tensor& states, int64_t frames) {
  data::CfFields fields{.values = states, .fields = input.info};
  if (!input.time) return fields;
  fields.time_units = input.time->units;
  fields.calendar = input.time->calendar;
  for (int64_t step = 1; step <= states.size(0); ++step)
    fields.times.push_back(input.time->at +
                           input.time->interval * static_cast<double>(step * frames));
  return fields;
}

}  // namespace

Exit predict_forecast(const PredictArguments& arguments, const SavedModel& saved,
                      nn::Model& model) {
  const nn::VitOptions& sizes = saved.options.model.vit;
  expect_known_ending(arguments);
  expect_steps(arguments, sizes);
  PredictInput input =
      read_input(arguments, saved.options, {sizes.channels_in, sizes.image[0], sizes.image[1]});
  const at::Tensor now = input.fields;
  const std::vector<std::string> both(
      input.info.names.begin(),
      input.info.names.begin() + std::min(sizes.channels_in, sizes.channels_out));
  const int64_t channel = train::channel_called("--channel", arguments.channel, both);
  const at::Tensor states = train::forecast(
      model, train::normalisation_of(saved.options.data, now.size(0)), now, arguments.steps);
  input.info.names = train::channel_names(saved.options.data, input.info.names, sizes.channels_out);
  if (is_netcdf_name(arguments.out))
    data::write_cf(arguments.out, described(input, states, saved.options.data.step));
  else
    data::write_array(arguments.out, states);
  PictureRecord picture = train::maps_of(
      input.info, channel,
      {{"now", now},
       {fmt::format("after {} step{}", arguments.steps, arguments.steps == 1 ? "" : "s"),
        states[arguments.steps - 1]}});
  picture.tag = fmt::format("Forecast of {}", input.info.names[static_cast<size_t>(channel)]);
  write_picture(arguments.out, picture);
  return Exit::ok;
}

Exit predict_finer(const PredictArguments& arguments, const SavedModel& saved, nn::Model& model) {
  expect_known_ending(arguments);
  PredictInput input = read_input(arguments, saved.options, {saved.options.model.swinir.channels});
  const int64_t channel = train::channel_called("--channel", arguments.channel, input.info.names);
  const at::Tensor fine = train::super_resolve(model, input.fields);
  PictureRecord picture =
      train::maps_of(input.info, channel,
                     {{fmt::format("{} times finer", saved.options.model.swinir.scale), fine}});
  picture.tag = fmt::format("Finer {}", input.info.names[static_cast<size_t>(channel)]);
  input.info.latitudes.clear();  // of the coarse grid
  input.info.longitudes.clear();
  if (is_netcdf_name(arguments.out))
    data::write_cf(arguments.out, described(input, fine.unsqueeze(0), 0));
  else
    data::write_array(arguments.out, fine);
  write_picture(arguments.out, picture);
  return Exit::ok;
}

}  // namespace braid::cli
