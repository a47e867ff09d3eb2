// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "braid/core/error.h"
#include "braid/nn/options.h"
#include "check.h"
#include "module_model.h"
#include "reference.h"
#include "swinir_bands.h"
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

// Sequence parallelism shares out tokens, which an image does not have.
Scope of_images(Scope scope) {
  scope.build.layout.sequence = false;
  scope.build.layout.regather = false;
  return scope;
}

// What goes from group to group. Over the context axis: this rank's band.
struct SwinFlow {
  at::Tensor tokens;   // [B, H, W, width]
  at::Tensor shallow;  // [B, width, H, W]
  at::Tensor input;    // [B, channels, H, W], normalised; of upsampler none alone
};

// SwinIR for fields in physical units: takes mean and deviation off, and puts them back on the
// output. Residual groups are its blocks: a stage of a pipeline holds some of them, the first also
// what stands before group 0, the last what follows the last group.
class Swinir : public Layer {
 public:
  Swinir(Scope scope, const SwinirOptions& options)
      : Layer(of_images(std::move(scope))), options_(options), image_rows_(options.image[0]) {
    const c10::ScalarType wide = compute() == c10::kDouble ? c10::kDouble : c10::kFloat;
    mean_ = constant("mean", by_channel(options.mean), wide);
    std_ = constant("std", by_channel(options.std), wide);
    SwinTables tables;
    if (as_reference())
      tables = {
          .index = constant("relative_position_index", relative_index(options.window), c10::kLong),
          .masks = constant("shift_masks", shift_masks(options.window), compute())};
    if (layout().holds_first()) {
      conv_first_ = child<Conv2d>("conv_first", options.channels, options.width);
      norm_first_ = child<Layer>("patch_embed")->child<LayerNorm>("norm", options.width, 1e-5);
    }
    make_groups(tables);
    if (!layout().holds(last_group())) return;
    norm_ = child<LayerNorm>("norm", options.width, 1e-5,
                             width_lanes(this->scope().build, options.width));
    after_body_ = std::make_unique<SwinConvs>(*this, "conv_after_body", options);
    tail_ = std::make_unique<SwinTail>(*this, options);
  }

  at::Tensor forward(const at::Tensor& input,
                     const Pass& pass) {  // [B, C, h, w] -> [B, C, s h, s w]
    return stage({0, last_group() + 1}, {input}, pass).at(0);
  }

  Carry stage(const Range& blocks, const Carry& carry, const Pass& pass) {
    const auto here = enter();
    SwinFlow flow = blocks.begin == 0 ? head(carry.at(0)) : unpacked(carry);
    for (int64_t i = blocks.begin; i < blocks.end; ++i) {
      const auto group = groups_.at(static_cast<size_t>(i));
      flow.tokens =
          run_block(pass.blocks, group->path(), flow.tokens,
                    [group, pass](const at::Tensor& in) { return group->forward(in, pass); });
    }
    return blocks.end > last_group() ? Carry{end(flow)} : packed(flow);
  }

  std::vector<CarrySpec> carried(const at::Tensor& input) const {
    const int64_t batch = input.size(0), rows = bands_of(input.size(2)).mine(),
                  columns = padded_size(input.size(3));
    std::vector<CarrySpec> specs = {{{batch, rows, columns, options_.width}, stream_dtype()},
                                    {{batch, options_.width, rows, columns}, compute()}};
    if (tail_adds_input())
      specs.push_back({{batch, options_.channels, rows, columns}, mean_.scalar_type()});
    return specs;
  }

  at::Tensor local_target(const at::Tensor& target) const {
    if (layout().context.size() == 1) return target;
    return parallel::take_rows(target, output_bands(target.size(2) / options_.scale), 2);
  }
  LossShare loss_share() const { return {.context = layout().context}; }
  at::Tensor whole_output(const at::Tensor& output) const {
    return parallel::join_rows(output, output_bands(image_rows_), layout().context, 2);
  }

  std::vector<std::string> blocks() const {
    std::vector<std::string> names;
    for (int64_t i = 0; i <= last_group(); ++i) names.push_back("layers." + std::to_string(i));
    return names;
  }

  std::vector<LayerRow> layers() const {
    const int64_t rows = padded_size(options_.image[0]), columns = padded_size(options_.image[1]);
    std::vector<LayerRow> table;
    if (conv_first_ != nullptr)
      table = {conv_first_->row(rows, columns), norm_first_->row({rows * columns})};
    for (const auto& group : groups_)
      if (group != nullptr) group->rows(table, rows, columns);
    if (norm_ == nullptr) return table;
    table.push_back(norm_->row({rows * columns}));
    after_body_->rows(table, rows, columns);
    tail_->rows(table, rows, columns);
    return table;
  }

 private:
  at::Tensor constant(const std::string& name, const at::Tensor& value, c10::ScalarType dtype) {
    return register_buffer(name, value.to(scope().build.device, dtype));
  }

  void make_groups(const SwinTables& tables) {
    const auto list = child<Layer>("layers");
    int64_t first_block = 0;
    for (int64_t i = 0; i <= last_group(); ++i) {
      const auto at = static_cast<size_t>(i);
      const SwinGroupPlan plan = {options_.depths[at], options_.heads[at], first_block};
      groups_.push_back(layout().holds(i)
                            ? list->child<SwinGroup>(std::to_string(i), options_, plan, tables)
                            : nullptr);
      first_block += options_.depths[at];
    }
  }

  int64_t last_group() const { return static_cast<int64_t>(options_.depths.size()) - 1; }
  bool tail_adds_input() const { return options_.upsampler == Upsampler::none; }
  int64_t padded_size(int64_t size) const {
    return (size + options_.window - 1) / options_.window * options_.window;
  }
  parallel::RowBands bands_of(int64_t rows) const {
    return image_bands(rows, options_.window, layout());
  }
  parallel::RowBands output_bands(int64_t rows) const {
    return bands_of(rows).cut_to(rows).enlarged(options_.scale);
  }

  // Up to the first group, from the whole input: halo rows are taken from it, too.
  SwinFlow head(const at::Tensor& input) {
    note_size(input);
    const parallel::RowBands bands = bands_of(input.size(2));
    const Range held = bands.with_halo(layout().context.size() > 1 ? 1 : 0);
    at::Tensor x = padded_to(input, options_.window);
    if (layout().context.size() > 1) x = x.narrow(2, held.begin, held.size());
    x = (x.to(mean_.scalar_type()) - mean_) / std_;
    SwinFlow flow;
    flow.shallow = conv_on_input(*conv_first_, x, bands);
    flow.tokens = norm_first_->forward(flow.shallow.permute({0, 2, 3, 1}), stream_dtype());
    if (tail_adds_input()) flow.input = x.narrow(2, bands.first() - held.begin, bands.mine());
    return flow;
  }

  at::Tensor end(const SwinFlow& flow) const {
    const at::Tensor body = norm_->forward(flow.tokens).permute({0, 3, 1, 2});
    const at::Tensor deep = on_shallow(after_body_->forward(body), flow.shallow);
    const at::Tensor y = tail_->forward(deep, flow.input).to(mean_.scalar_type()) * std_ + mean_;
    return y.narrow(2, 0, output_bands(image_rows_).mine())
        .narrow(3, 0, image_columns_ * options_.scale);
  }

  // x may have lanes.
  static at::Tensor on_shallow(const at::Tensor& x, const at::Tensor& shallow) {
    if (x.size(1) == shallow.size(1)) return x + shallow;
    const auto last = [](const at::Tensor& image) { return image.permute({0, 2, 3, 1}); };
    return kernels::add_trimmed(last(shallow), last(x)).permute({0, 3, 1, 2});
  }

  static Carry packed(const SwinFlow& flow) {
    if (!flow.input.defined()) return {flow.tokens, flow.shallow};
    return {flow.tokens, flow.shallow, flow.input};
  }
  SwinFlow unpacked(const Carry& carry) const {
    return {carry.at(0), carry.at(1), tail_adds_input() ? carry.at(2) : at::Tensor()};
  }

  // Later stages do not see the input: in a pipeline it has the size that the config says.
  void note_size(const at::Tensor& input) {
    if (!layout().stages.empty() && input.sizes().slice(2) != at::IntArrayRef(options_.image))
      throw DataError(
          {.what = fmt::format("the input has shape {}, model.image = [{}]",
                               c10::str(input.sizes()), fmt::join(options_.image, ", ")),
           .why = "the stages of a pipeline learn the size of images from the config",
           .fix = fmt::format("set model.image=[{},{}]", input.size(2), input.size(3))});
    image_rows_ = input.size(2);
    image_columns_ = input.size(3);
  }

  SwinirOptions options_;
  int64_t image_rows_, image_columns_ = options_.image[1];  // of the last input
  at::Tensor mean_, std_;  // [channels, 1, 1], fp32 or better: 278 K has no room in 16 bits
  std::shared_ptr<Conv2d> conv_first_;  // null: in another stage, as all below
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
      {.what = fmt::format("model.scale = {} is not compatible with model.upsampler", o.scale),
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

void check_swinir_layout(const SwinirOptions& o, const Layout& layout) {
  for (int64_t heads : o.heads)
    check_divides("mesh.tensor", layout.tensor.size(), "model.heads", heads,
                  "a rank of the tensor axis holds whole attention heads");
  image_bands(o.image[0], o.window, layout);  // throws if they are too thin
}

}  // namespace

std::unique_ptr<Model> make_swinir(const SwinirOptions& options, const Build& build) {
  check_swinir(options);
  check_swinir_layout(options, build.layout);
  check_reference("swinir", build);
  return std::make_unique<ModuleModel<Swinir>>("swinir",
                                               std::make_shared<Swinir>(Scope{build}, options));
}

}  // namespace braid::nn
