// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "braid/core/error.h"
#include "data/fields.h"

namespace braid::data {
namespace {

constexpr double most_samples = 4e9;  // an epoch's order takes 8 bytes of memory a sample
constexpr double most_edge = 1 << 24, most_tokens = 1 << 28;
constexpr double most_workers = 1024, most_queued = 1 << 16;

void describe_fields(Fields& f, DataOptions& o) {
  f.field("dataset", o.dataset,
          "name of the dataset in HDF5 files: [time, channel, height, width]");
  f.field("variables", o.variables,
          "netCDF-4: variables with time, rows and columns, one per channel, instead of dataset");
  f.field("levels", o.levels,
          "netCDF-4: levels to take as channels, by their values, e.g. [850, 500]; empty: all");
  f.field(
      "names", o.names,
      "names of the channels in metrics, pictures and forecasts; empty: as the files call them, "
      "otherwise c0, c1, ...");
  f.field("means", o.means, ".npy with the mean of each channel; empty: no normalisation");
  f.field("stds", o.stds, ".npy with the standard deviation of each channel");
  f.choice(
      "changed_statistics", o.changed_statistics, {"refuse", "files", "checkpoint"},
      "resume, if means or stds differ from those in the checkpoint: refuse, or go on with the "
      "files or with the checkpoint's");
  f.choice("missing", o.missing, {"error", "fill"},
           "missing values (NaN, _FillValue, missing_value, outside of valid_range): error stops "
           "and names the place, fill takes the mean of the channel");
  f.field("step", o.step, "frames: how many frames later the target lies",
          {.at_least = 1, .at_most = most_samples});
  f.choice("pairs", o.pairs, {"all", "reference"},
           "frames: every frame with one `step` later, never across a gap in time; or, as the "
           "loader of the NERSC course counts, by number within each file, where none of the first "
           "`step` frames is an input");
  f.field("size", o.size,
          "frames: cut to [height, width] from the top left; crops: side of a square crop, empty: "
          "whole slices");
  f.field("channels", o.channels, "the first channels of the files; 0: all",
          {.at_least = 0, .at_most = most_edge});
  f.field("scale", o.scale, "crops: how much coarser the input is",
          {.at_least = 1, .at_most = most_edge});
  f.field("reduce", o.reduce, "crops: how the input is made coarser",
          {.one_of = {"bicubic", "uniform", "noisy_uniform"}});
  f.field("noise_ratio", o.noise_ratio, "crops: noise of noisy_uniform in standard deviations",
          {.at_least = 0});
  f.field("patches", o.patches, "crops: random crops a slice and epoch",
          {.at_least = 1, .at_most = 1e6});
}

void describe_made_up(Fields& f, DataOptions& o) {
  f.field("points", o.points, "spiral: points of both classes together",
          {.at_least = 2, .at_most = most_samples});
  f.field("noise", o.noise, "spiral: standard deviation of the noise of a coordinate",
          {.at_least = 0});
  f.field("data_seed", o.data_seed, "spiral, synthetic: seed of the data themselves");
  f.field("pattern", o.pattern, "synthetic: smooth waves, or every value drawn alone",
          {.one_of = {"smooth", "random"}});
  f.field("input_shape", o.input_shape, "synthetic: shape of an input");
  f.field("target_shape", o.target_shape,
          "synthetic: shape of a target; empty: that of the input, or one class");
  f.field("samples", o.samples, "synthetic: samples a split",
          {.at_least = 1, .at_most = most_samples});
  f.field("classes", o.classes, "synthetic: targets are classes below this; 0: numbers",
          {.at_least = 0, .at_most = most_tokens});
}

void check_statistics(const DataOptions& options) {
  const bool noise_only =
      options.kind == Kind::crops && options.reduce == "noisy_uniform" && options.means.empty();
  if (options.means.empty() == options.stds.empty() || noise_only) return;
  throw ConfigError({.what = options.means.empty() ? "data.stds without data.means"
                                                   : "data.means without data.stds",
                     .why = "a field is normalised as (x - mean) / std",
                     .fix = "set both, or neither"});
}

void check_size_rank(const DataOptions& options) {
  const size_t rank = options.size.size();
  if (rank == 0) return;
  if (options.kind == Kind::frames && rank != 2)
    throw ConfigError({.what = fmt::format("data.size has {} numbers", rank),
                       .why = "frames are cut to a height and a width",
                       .fix = "set data.size to [height, width], e.g. [360, 720]"});
  if (options.kind == Kind::crops && (rank > 2 || options.size.front() != options.size.back()))
    throw ConfigError({.what = "data.size is not one side of a square",
                       .why = "crops are squares",
                       .fix = fmt::format("set data.size to [{}]", options.size[0])});
}

// Of a made-up sample: at least one number, and no more than memory can be asked for.
void check_shape(const char* key, const std::vector<int64_t>& shape) {
  constexpr double most = 1e12;
  double numbers = 1;
  for (const int64_t size : shape) {
    numbers *= static_cast<double>(size);
    if (size >= 1 && numbers <= most) continue;
    throw ConfigError({.what = fmt::format("{} = [{}]", key, fmt::join(shape, ", ")),
                       .why = fmt::format("a sample has at least one number in each dimension and "
                                          "at most {} in all",
                                          most),
                       .fix = fmt::format("set {} to sizes such as [3, 64, 64]", key)});
  }
}

void check_limit(const DataOptions& options, Split split) {
  const auto limit = split_limit(options, split);
  if (!limit || *limit > 0) return;
  throw ConfigError({.what = fmt::format("data.limit_{} = {}", split_name(split), *limit),
                     .why = "a limit takes the first samples, at least one",
                     .fix = "set it above 0, or to none"});
}

}  // namespace

void describe(Fields& f, DataOptions& o) {
  f.choice("kind", o.kind, {"frames", "crops", "tokens", "text", "spiral", "synthetic"},
           "what a sample is");
  f.field("train", o.train,
          "folder of HDF5 files, pattern of token files, or text file, to train on");
  f.field("valid", o.valid, "the same for validation");
  f.field("test", o.test, "the same for the test at the end");
  describe_fields(f, o);
  f.field("limit_train", o.limit_train, "train on the first samples only", {.at_least = 1});
  f.field("limit_valid", o.limit_valid, "validate on the first samples only", {.at_least = 1});
  f.field("limit_test", o.limit_test, "test on the first samples only", {.at_least = 1});
  f.field("sequence", o.sequence, "tokens, text: tokens a sample",
          {.at_least = 1, .at_most = most_tokens});
  f.field("token_bytes", o.token_bytes, "tokens: bytes a token in files without a header, 2 or 4",
          {.at_least = 2, .at_most = 4});
  describe_made_up(f, o);
  f.field("workers", o.workers, "reader threads, up to 1024; 0: the training thread reads",
          {.at_least = 0, .at_most = most_workers});
  f.field("queue", o.queue, "batches read ahead, which lie in memory",
          {.at_least = 1, .at_most = most_queued});
  f.field("check_finite", o.check_finite,
          "stop at a NaN or infinity in the data and name its place");
}

std::shared_ptr<const Source> open_source(const DataOptions& options, Split split, uint64_t seed) {
  check_statistics(options);
  check_size_rank(options);
  check_limit(options, split);
  if (options.kind == Kind::synthetic) {
    check_shape("data.input_shape", options.input_shape);
    check_shape("data.target_shape", options.target_shape);
  }
  switch (options.kind) {
    case Kind::frames:
      return open_frames(options, split);
    case Kind::crops:
      return open_crops(options, split, seed);
    case Kind::tokens:
      return open_tokens(options, split);
    case Kind::text:
      return open_text(options, split);
    case Kind::spiral:
      return open_spiral(options, split);
    case Kind::synthetic:
      return open_synthetic(options, split);
  }
  throw InternalError({.what = fmt::format("data kind {}", static_cast<int>(options.kind)),
                       .why = "it is not one of the enumerators",
                       .fix = "report this"});
}

bool has_split(const DataOptions& options, Split split) {
  switch (options.kind) {
    case Kind::spiral:
    case Kind::synthetic:
      return true;
    case Kind::text:
      if (options.valid.empty() && options.test.empty()) return !options.train.empty();
      [[fallthrough]];
    default:
      return !split_path(options, split).empty();
  }
}

}  // namespace braid::data
