// SPDX-License-Identifier: BSD-3-Clause
#include "swinir_block.h"

#include <cmath>
#include <numeric>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>

#include "braid/kernels/masks.h"
#include "braid/nn/blocks.h"
#include "braid/parallel/halo.h"
#include "swinir_bands.h"
#include "window.h"

namespace braid::nn {
namespace {

constexpr double swin_eps = 1e-5;

// Grows linearly over all blocks, from 0 to the given rate at the last one.
double drop_path_of(const SwinirOptions& options, int64_t block) {
  const int64_t blocks = std::accumulate(options.depths.begin(), options.depths.end(), int64_t{0});
  return blocks > 1
             ? options.drop_path * static_cast<double>(block) / static_cast<double>(blocks - 1)
             : 0;
}

template <class Rule>
kernels::Lanes lanes_by(Rule rule, const Build& build, int64_t size) {
  if (build.kernels == Kernels::reference) return {size, size};
  return rule(size, build.precision.compute, build.device.type());
}

}  // namespace

kernels::Lanes width_lanes(const Build& build, int64_t width) {
  return lanes_by(&kernels::lanes_of_width, build, width);
}

SwinConvs::SwinConvs(Layer& parent, const std::string& name, const SwinirOptions& options)
    : packed_(parent.scope().build.pack_masks),
      in_place_(parent.scope().build.kernels == Kernels::reference) {
  const int64_t width = options.width, narrow = width / 4;
  if (options.residual == Residual::conv1) {
    convs_ = {parent.child<Conv2d>(name, width, width)};
    return;
  }
  const auto list = parent.child<Layer>(name);  // numbers leave room for the activations between
  convs_ = {list->child<Conv2d>("0", width, narrow),
            list->child<Conv2d>("2", narrow, narrow,
                                Conv2dOptions{.kernel = 1, .stride = 1, .padding = 0}),
            list->child<Conv2d>("4", narrow, width)};
}

at::Tensor SwinConvs::forward(at::Tensor x) const {
  for (size_t i = 0; i < convs_.size(); ++i) {
    x = conv_on_band(*convs_[i], x, {.in = true, .out = true});
    if (i + 1 == convs_.size()) return x;
    x = in_place_ ? at::leaky_relu_(x, 0.2) : kernels::leaky_relu(x, 0.2, packed_);
  }
  return x;
}

void SwinConvs::rows(std::vector<LayerRow>& table, int64_t rows, int64_t columns) const {
  for (const auto& conv : convs_) table.push_back(conv->row(rows, columns));
}

WindowAttention::WindowAttention(Scope scope, const SwinirOptions& options, int64_t heads,
                                 SwinTables tables)
    : Layer(std::move(scope)),
      width_(options.width),
      window_(options.window),
      heads_(heads),
      tables_(std::move(tables)) {
  const int64_t head = width_ / heads_, entries = (2 * window_ - 1) * (2 * window_ - 1);
  bias_table_ =
      param("relative_position_bias_table", {entries, heads_}, Init::truncated(0.02), table_part());
  held_heads_ = bias_table_.size(1);
  const kernels::Lanes outside = width_lanes(this->scope().build, width_),
                       inside = lanes_by(&kernels::lanes_of_head, this->scope().build, head);
  qkv_ = child<Linear>("qkv", width_, 3 * width_,
                       LinearOptions{.split = Split::columns,
                                     .unit = head,
                                     .parts = 3,
                                     .in_lanes = outside,
                                     .out_lanes = inside});
  proj_ = child<Linear>(
      "proj", width_, width_,
      LinearOptions{.split = Split::rows, .unit = head, .in_lanes = inside, .out_lanes = outside});
}

ParamPart WindowAttention::table_part() const {
  if (layout().tensor.size() == 1) return replicated(/*on_tokens=*/false);
  return {.cuts = {{1, parallel::split_ranges(heads_, layout().tensor)}},
          .repeated = layout().expert.rank() > 0};
}

at::Tensor WindowAttention::bias() const {
  const int64_t tokens = window_ * window_;
  const at::Tensor rows = cast(bias_table_).index_select(0, tables_.index.flatten());
  return rows.view({tokens, tokens, held_heads_}).permute({2, 0, 1});
}

kernels::WindowOptions WindowAttention::windows_at(int64_t shift) const {
  const comm::Group& bands = layout().context;
  const int64_t head_width = width_ / heads_;
  return {.window = window_,
          .scale = 1 / std::sqrt(static_cast<double>(head_width)),
          .roll_rows = bands.size() > 1 ? 0 : shift,  // rows of windows are of two ranks
          .roll_columns = shift,
          .seam_rows = bands.rank() + 1 == bands.size() ? shift : 0,
          .seam_columns = shift};
}

at::Tensor WindowAttention::forward(const at::Tensor& x, int64_t shift, const Pass& pass) const {
  const auto here = enter();
  const comm::Group& bands = layout().context;
  const bool across = shift > 0 && bands.size() > 1;
  const at::Tensor image = across ? parallel::band_roll(x, {-shift}, {1}, bands) : x;
  const at::Tensor qkv = columns(image, pass, {qkv_.get()})[0];
  const auto self = std::static_pointer_cast<const WindowAttention>(shared_from_this());
  const kernels::WindowOptions windows = windows_at(shift);
  const at::Tensor y =
      run_segment(pass.segments, SegmentKind::attention, path(), {qkv},
                  [self, windows](const std::vector<at::Tensor>& in) {
                    return kernels::window_attention(in.at(0), self->bias_table_, windows);
                  });
  const at::Tensor out = proj_->forward(y);
  return across ? parallel::band_roll(out, {shift}, {1}, bands) : out;
}

at::Tensor WindowAttention::forward_as_reference(const at::Tensor& windows, const WindowGrid& grid,
                                                 const Pass& pass) const {
  const auto here = enter();
  const int64_t count = windows.size(0), tokens = windows.size(1), head = width_ / heads_;
  const at::Tensor qkv = columns(windows, pass, {qkv_.get()})[0]
                             .view({count, tokens, 3, held_heads_, head})
                             .permute({2, 0, 3, 1, 4});
  const auto self = std::static_pointer_cast<const WindowAttention>(shared_from_this());
  const at::Tensor y =
      run_segment(pass.segments, SegmentKind::attention, path(), {qkv[0], qkv[1], qkv[2]},
                  [self, grid](const std::vector<at::Tensor>& in) {
                    return self->attend_as_reference(in, grid);
                  });
  return proj_->forward(y.transpose(1, 2).reshape({count, tokens, held_heads_ * head}));
}

// A mask of all windows is added whether or not they are shifted, and each sum is a new tensor:
// under autocast of fp32, because bias and mask are.
at::Tensor WindowAttention::attend_as_reference(const std::vector<at::Tensor>& qkv,
                                                const WindowGrid& grid) const {
  const auto here = enter();
  const int64_t tokens = qkv[0].size(2), head = qkv[0].size(3), windows = grid.rows * grid.columns;
  const at::Tensor mask = window_masks(tables_.masks, grid.rows, grid.columns, grid.shifted);
  const at::Tensor q = qkv[0] * (1 / std::sqrt(static_cast<double>(head)));
  at::Tensor scores = at::matmul(q, qkv[1].transpose(-2, -1));
  scores = scores + bias().contiguous();
  scores = scores.view({grid.batch, windows, held_heads_, tokens, tokens}) + mask.unsqueeze(1);
  scores = at::softmax(scores.view({-1, held_heads_, tokens, tokens}), -1);
  return at::matmul(scores, qkv[2]);
}

void WindowAttention::rows(std::vector<LayerRow>& table, int64_t rows, int64_t columns) const {
  const int64_t pixels = rows * columns, tokens = window_ * window_;
  table.push_back(qkv_->row({pixels}));
  table.push_back(row(fmt::format("Window attention {} heads x {}, {}x{}", heads_, width_ / heads_,
                                  window_, window_),
                      {pixels, width_},
                      4.0 * static_cast<double>(pixels * tokens) * static_cast<double>(width_)));
  table.push_back(proj_->row({pixels}));
}

SwinBlock::SwinBlock(Scope scope, const SwinirOptions& options, SwinBlockPlan plan,
                     const SwinTables& tables)
    : Layer(std::move(scope)),
      window_(options.window),
      shift_(plan.shifted ? options.window / 2 : 0),
      norm1_(child<LayerNorm>("norm1", options.width, swin_eps,
                              width_lanes(this->scope().build, options.width))),
      attn_(child<WindowAttention>("attn", options, plan.heads, tables)),
      path1_(this->scope(), "drop_path1", plan.drop_path),
      path2_(this->scope(), "drop_path2", plan.drop_path) {
  const kernels::Lanes lanes = width_lanes(this->scope().build, options.width);
  norm2_ = child<LayerNorm>("norm2", options.width, swin_eps, lanes);
  const int64_t hidden = std::llround(static_cast<double>(options.width) * options.mlp_ratio);
  mlp_ = child<MlpBlock>("mlp", options.width, MlpBlockOptions{.hidden = hidden, .lanes = lanes});
  // Held and never used: the published runs build the net for images one window larger each way.
  if (as_reference() && plan.shifted)
    register_buffer("attn_mask", window_masks(tables.masks, options.image[0] / window_ + 1,
                                              options.image[1] / window_ + 1, true));
}

at::Tensor SwinBlock::attend_as_reference(const at::Tensor& x, const Pass& pass,
                                          std::vector<at::Tensor>& named) const {
  const WindowGrid grid = {x.size(0), x.size(1) / window_, x.size(2) / window_, shift_ > 0};
  const at::Tensor rolled = grid.shifted ? at::roll(x, {-shift_, -shift_}, {1, 2}) : x;
  const at::Tensor parts = to_windows(rolled, window_);
  const at::Tensor windows = attn_->forward_as_reference(parts, grid, pass);
  const at::Tensor image = from_windows(windows, x.sizes(), window_);
  named = {parts, windows, image};
  return grid.shifted ? at::roll(image, {shift_, shift_}, {1, 2}) : image;
}

Stream SwinBlock::forward(Stream in, const Pass& pass) const {
  const auto here = enter();
  if (as_reference()) return {forward_as_reference(in.closed(), pass)};
  NormedSum first = norm1_->add(in.sum, std::move(in.branch));
  in = {};
  kernels::Branch attended = path1_(attn_->forward(std::exchange(first.y, {}), shift_, pass), pass);
  NormedSum second = norm2_->add(first.sum, std::move(attended));
  first = {};
  return {second.sum, path2_(mlp_->forward(std::exchange(second.y, {}), pass), pass)};
}

at::Tensor SwinBlock::forward_as_reference(const at::Tensor& input, const Pass& pass) const {
  std::vector<at::Tensor> named;  // Python holds what a function named until it returns
  const at::Tensor x =
      input + path1_(attend_as_reference(norm1_->forward(input), pass, named), pass).value();
  return x + path2_(mlp_->forward(norm2_->forward(x), pass), pass).value();
}

void SwinBlock::rows(std::vector<LayerRow>& table, int64_t rows, int64_t columns) const {
  table.push_back(norm1_->row({rows * columns}));
  attn_->rows(table, rows, columns);
  table.push_back(norm2_->row({rows * columns}));
  mlp_->rows(table, {rows * columns});
}

SwinGroup::SwinGroup(Scope scope, const SwinirOptions& options, SwinGroupPlan plan,
                     const SwinTables& tables)
    : Layer(std::move(scope)) {
  const auto list = child<Layer>("residual_group")->child<Layer>("blocks");
  for (int64_t i = 0; i < plan.depth; ++i) {
    const SwinBlockPlan block = {plan.heads, i % 2 == 1,
                                 drop_path_of(options, plan.first_block + i)};
    blocks_.push_back(list->child<SwinBlock>(std::to_string(i), options, block, tables));
  }
  conv_ = std::make_unique<SwinConvs>(*this, "conv", options);
}

at::Tensor SwinGroup::forward(const at::Tensor& input, const Pass& pass) const {
  const auto here = enter();
  Pass inside = pass;
  inside.blocks = nullptr;  // the group is one of them: the weights of its blocks are there
  std::vector<NamedBlock> named;
  for (const auto& block : blocks_)
    named.push_back({block->path(),
                     [block, inside](Stream in) { return block->forward(std::move(in), inside); }});
  const at::Tensor x = run_blocks(inside, named, input);
  return kernels::add_trimmed(input, conv_->forward(x.permute({0, 3, 1, 2})).permute({0, 2, 3, 1}));
}

void SwinGroup::rows(std::vector<LayerRow>& table, int64_t rows, int64_t columns) const {
  for (const auto& block : blocks_) block->rows(table, rows, columns);
  conv_->rows(table, rows, columns);
}

}  // namespace braid::nn
