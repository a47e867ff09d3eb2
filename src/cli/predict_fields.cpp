// SPDX-License-Identifier: BSD-3-Clause
// Forecasts and finer pictures: fields in, fields and a PNG out.
#include <fmt/format.h>

#include <algorithm>

#include "braid/core/fs.h"
#include "braid/data/arrays.h"
#include "braid/report/png.h"
#include "braid/train/evaluate.h"
#include "braid/train/predict.h"
#include "cli/predict.h"

namespace braid::cli {
namespace {

at::Tensor read_fields(const PredictArguments& arguments) {
  if (arguments.input.empty())
    throw ConfigError({.what = "there is no --input",
                       .why = "the model takes a field of [channels, rows, columns]",
                       .fix = "--input file.npy, or --input file.h5 --frame 12"});
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

std::pair<std::string, std::vector<float>> panel(const std::string& title,
                                                 const at::Tensor& field) {
  const at::Tensor host = field.contiguous();
  return {title, {host.data_ptr<float>(), host.data_ptr<float>() + host.numel()}};
}

void write_picture(const std::string& out, PictureRecord picture) {
  const std::string file = std::filesystem::path(out).replace_extension(".png").string();
  write_atomic(file, report::png_of(picture));
  fmt::print("wrote {} and {}\n", out, file);
}

void expect_channels(const PredictArguments& arguments, const at::Tensor& field, int64_t channels,
                     bool more) {
  if (field.size(0) == channels || (more && field.size(0) > channels)) return;
  throw DataError({.what = fmt::format("{} has {} channels, the model takes {}", arguments.input,
                                       field.size(0), channels),
                   .why = "each channel of the model needs its field",
                   .fix = "give a file with the channels that the model was trained on"});
}

void expect_channel(const PredictArguments& arguments, int64_t channels) {
  if (arguments.channel >= 0 && arguments.channel < channels) return;
  throw ConfigError({.what = fmt::format("--channel {}", arguments.channel),
                     .why = fmt::format("the output has channels 0 to {}", channels - 1),
                     .fix = "choose one of these for the picture"});
}

void expect_steps(const PredictArguments& arguments, const nn::VitOptions& model) {
  if (arguments.steps == 1 || model.channels_in == model.channels_out) return;
  throw ConfigError({.what = fmt::format("--steps {} with {} channels in and {} out",
                                         arguments.steps, model.channels_in, model.channels_out),
                     .why = "each output is the next input",
                     .fix = "--steps 1"});
}

}  // namespace

Exit predict_forecast(const PredictArguments& arguments, const SavedModel& saved,
                      nn::Model& model) {
  const nn::VitOptions& sizes = saved.options.model.vit;
  const auto& image = sizes.image;
  expect_steps(arguments, sizes);
  expect_channel(arguments, std::min(sizes.channels_in, sizes.channels_out));
  at::Tensor now = read_fields(arguments);
  expect_channels(arguments, now, sizes.channels_in, /*more=*/true);
  if (now.size(1) < image[0] || now.size(2) < image[1])
    throw DataError(
        {.what = fmt::format("{} is {} x {}, the model takes {} x {}", arguments.input, now.size(1),
                             now.size(2), image[0], image[1]),
         .why = "a larger field is cropped from the top left, a smaller one cannot be used",
         .fix = "give a field of the size that the model was trained on"});
  now = now.narrow(0, 0, saved.options.model.vit.channels_in)
            .narrow(1, 0, image[0])
            .narrow(2, 0, image[1]);
  const at::Tensor states = train::forecast(
      model, train::normalisation_of(saved.options.data, now.size(0)), now, arguments.steps);
  data::write_array(arguments.out, states);
  const std::string name = train::channel_name(arguments.channel);
  PictureRecord picture{.tag = name, .rows = now.size(1), .columns = now.size(2)};
  picture.panels = {panel(name + " now", now[arguments.channel]),
                    panel(fmt::format("{} after {} steps", name, arguments.steps),
                          states[arguments.steps - 1][arguments.channel])};
  write_picture(arguments.out, picture);
  return Exit::ok;
}

Exit predict_finer(const PredictArguments& arguments, const SavedModel& saved, nn::Model& model) {
  const int64_t channels = saved.options.model.swinir.channels;
  expect_channel(arguments, channels);
  const at::Tensor coarse = read_fields(arguments);
  expect_channels(arguments, coarse, channels, /*more=*/false);
  const at::Tensor fine = train::super_resolve(model, coarse);
  data::write_array(arguments.out, fine);
  PictureRecord picture{.tag = "fine", .rows = fine.size(1), .columns = fine.size(2)};
  picture.panels = {panel(fmt::format("channel {}", arguments.channel), fine[arguments.channel])};
  write_picture(arguments.out, picture);
  return Exit::ok;
}

}  // namespace braid::cli
