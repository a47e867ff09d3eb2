// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/nn/options.h"
#include "check.h"
#include "module_model.h"
#include "swinir_block.h"
#include "swinir_tail.h"
#include "window.h"

namespace braid::nn {
namespace {

// [channels, 1, 1]. From memory that is there, so that it is real in a dry run, too.
at::Tensor by_channel(std::vector<double> values) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size()), 1, 1}, c10::kDouble)
      .clone();
}

// SwinIR for fields in physical units: takes mean and deviation off, and puts them back on the
// output.
class Swinir : public Layer {
 public:
  Swinir(Scope scope, const SwinirOptions& options) : Layer(std::move(scope)), options_(options) {
    const c10::ScalarType wide = compute() == c10::kDouble ? c10::kDouble : c10::kFloat;
    mean_ = constant("mean", by_channel(options.mean), wide);
    std_ = constant("std", by_channel(options.std), wide);
    const SwinTables tables = {
        .index = constant("relative_position_index", relative_index(options.window), c10::kLong),
        .masks = constant("shift_masks", shift_masks(options.window), compute())};

    conv_first_ = child<Conv2d>("conv_first", options.channels, options.width);
    norm_first_ = child<Layer>("patch_embed")->child<LayerNorm>("norm", options.width, 1e-5);
    const auto list = child<Layer>("layers");
    int64_t first_block = 0;
    for (size_t i = 0; i < options.depths.size(); ++i) {
      const SwinGroupPlan plan = {options.depths[i], options.heads[i], first_block};
      groups_.push_back(list->child<SwinGroup>(std::to_string(i), options, plan, tables));
      first_block += options.depths[i];
    }
    norm_ = child<LayerNorm>("norm", options.width, 1e-5);
    after_body_ = std::make_unique<SwinConvs>(*this, "conv_after_body", options);
    tail_ = std::make_unique<SwinTail>(*this, options);
  }

  at::Tensor forward(const at::Tensor& input,
                     const Pass& pass) const {  // [B, C, h, w] -> [B, C, s h, s w]
    const auto here = enter();
    const at::Tensor x = (padded_to(input, options_.window).to(mean_.scalar_type()) - mean_) / std_;
    const at::Tensor shallow = conv_first_->forward(x);
    const at::Tensor deep = after_body_->forward(body(shallow, pass)) + shallow;
    const at::Tensor y = tail_->forward(deep, x).to(mean_.scalar_type()) * std_ + mean_;
    return y.narrow(2, 0, input.size(2) * options_.scale)
        .narrow(3, 0, input.size(3) * options_.scale);
  }

  std::vector<std::string> blocks() const { return paths_of(groups_); }

  std::vector<LayerRow> layers() const {
    const int64_t w = options_.window;
    const int64_t rows = (options_.image[0] + w - 1) / w * w,
                  columns = (options_.image[1] + w - 1) / w * w;
    std::vector<LayerRow> table = {conv_first_->row(rows, columns),
                                   norm_first_->row({rows * columns})};
    for (const auto& group : groups_) group->rows(table, rows, columns);
    table.push_back(norm_->row({rows * columns}));
    after_body_->rows(table, rows, columns);
    tail_->rows(table, rows, columns);
    return table;
  }

 private:
  at::Tensor constant(const std::string& name, const at::Tensor& value, c10::ScalarType dtype) {
    return register_buffer(name, value.to(scope().build.device, dtype));
  }

  at::Tensor body(const at::Tensor& shallow, const Pass& pass) const {  // [B, width, H, W]
    at::Tensor x = norm_first_->forward(shallow.permute({0, 2, 3, 1}));
    for (const auto& group : groups_)
      x = run_block(pass.blocks, group->path(), x,
                    [&](const at::Tensor& in) { return group->forward(in, pass); });
    return norm_->forward(x).permute({0, 3, 1, 2});
  }

  SwinirOptions options_;
  at::Tensor mean_, std_;  // [channels, 1, 1], fp32 or better: 278 K has no room in 16 bits
  std::shared_ptr<Conv2d> conv_first_;
  std::shared_ptr<LayerNorm> norm_first_, norm_;
  std::vector<std::shared_ptr<SwinGroup>> groups_;
  std::unique_ptr<SwinConvs> after_body_;
  std::unique_ptr<SwinTail> tail_;
};

bool scale_fits(Upsampler upsampler, int64_t scale) {
  switch (upsampler) {
    case Upsampler::pixelshuffle:
      return scale == 3 || (scale > 0 && (scale & (scale - 1)) == 0);
    case Upsampler::pixelshuffledirect:
      return scale >= 1;
    case Upsampler::nearest_conv:
      return scale == 2 || scale == 4;
    case Upsampler::none:
      return scale == 1;
  }
  return false;
}

void check_scale(const SwinirOptions& o) {
  if (scale_fits(o.upsampler, o.scale)) return;
  throw ConfigError(
      {.what = fmt::format("model.scale = {} does not go with model.upsampler", o.scale),
       .why = "pixelshuffle enlarges by 3 or a power of 2, pixelshuffledirect by any number, "
              "nearest+conv by 2 or "
              "4, none by 1",
       .fix = "set model.scale or model.upsampler to a pair of that list"});
}

void check_lengths(const SwinirOptions& o) {
  if (o.depths.size() != o.heads.size() || o.depths.empty())
    throw ConfigError({.what = fmt::format("model.depths has {} numbers, model.heads has {}",
                                           o.depths.size(), o.heads.size()),
                       .why = "each residual group has a depth and a number of heads",
                       .fix = "give both lists the same length, e.g. depths=[6,6] heads=[6,6]"});
  const auto channels = static_cast<size_t>(o.channels);
  if (o.mean.size() != channels || o.std.size() != channels)
    throw ConfigError(
        {.what = fmt::format("model.mean has {} numbers and model.std {}, model.channels = {}",
                             o.mean.size(), o.std.size(), o.channels),
         .why = "each channel has a mean and a standard deviation",
         .fix = fmt::format("give {} numbers each, or 0 and 1 for data that is normalised already",
                            channels)});
}

void check_swinir(const SwinirOptions& o) {
  check_image(o.image);
  check_scale(o);
  check_lengths(o);
  for (int64_t heads : o.heads)
    check_divides("model.heads", heads, "model.width", o.width,
                  "a head holds a whole number of features");
}

}  // namespace

std::unique_ptr<Model> make_swinir(const SwinirOptions& options, const Build& build) {
  check_swinir(options);
  return std::make_unique<ModuleModel<Swinir>>("swinir",
                                               std::make_shared<Swinir>(Scope{build}, options));
}

}  // namespace braid::nn
