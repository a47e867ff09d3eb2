// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <fmt/format.h>

#include "braid/comm/differentiable.h"
#include "braid/core/error.h"
#include "braid/kernels/linear.h"
#include "braid/nn/blocks.h"
#include "braid/nn/options.h"
#include "braid/parallel/context.h"
#include "check.h"
#include "module_model.h"
#include "reference.h"

namespace braid::nn {
namespace {

// Heads are split over tensor: q, k, v by outputs, proj by inputs.
class VitAttention : public Layer {
 public:
  VitAttention(Scope scope, const VitOptions& options)
      : Layer(std::move(scope)),
        q_(child<Linear>("q", options.width, options.width, by_heads(options, Split::columns))),
        k_(child<Linear>("k", options.width, options.width, by_heads(options, Split::columns))),
        v_(child<Linear>("v", options.width, options.width, by_heads(options, Split::columns))),
        proj_(child<Linear>("proj", options.width, options.width, by_heads(options, Split::rows))),
        weights_drop_(this->scope(), "attn_drop", options.dropout),
        proj_drop_(this->scope(), "proj_drop", options.dropout),
        heads_(options.heads),
        width_(options.width) {}

  at::Tensor forward(const at::Tensor& x, const Pass& pass) const {  // [B, own tokens, width]
    const auto here = enter();
    const auto qkv = columns(x, pass, {q_.get(), k_.get(), v_.get()});
    const parallel::ContextAttentionOptions options = {
        .attention = {.drop = drop_of_weights(pass), .cudnn = !as_reference()},
        .method = layout().method};
    const at::Tensor y = run_segment(
        pass.segments, SegmentKind::attention, path(),
        {in_heads(qkv[0]), in_heads(qkv[1]), in_heads(qkv[2])},
        [options, share = pass.tokens,
         context = layout().context](const std::vector<at::Tensor>& in) {
          return parallel::context_attention(in.at(0), in.at(1), in.at(2), share, context, options);
        });
    return proj_drop_(proj_->forward(y.transpose(1, 2).flatten(2)), pass);
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    for (const auto& linear : {q_, k_, v_}) table.push_back(linear->row({tokens}));
    const double pairs = static_cast<double>(tokens) * static_cast<double>(tokens);
    table.push_back(Layer::row(fmt::format("Attention {} heads x {}", heads_, head_width()),
                               {tokens, width_}, 4 * pairs * static_cast<double>(width_)));
    table.push_back(proj_->row({tokens}));
  }

 private:
  static LinearOptions by_heads(const VitOptions& options, Split split) {
    return {.split = split, .unit = options.width / options.heads};
  }
  int64_t head_width() const { return width_ / heads_; }
  at::Tensor in_heads(const at::Tensor& x) const {  // -> [B, heads here, N, head width]
    return x.unflatten(2, {-1, head_width()}).transpose(1, 2).to(scope().build.precision.compute);
  }

  // Masks are those of the global heads.
  kernels::Drop drop_of_weights(const Pass& pass) const {
    kernels::Drop drop = weights_drop_.at(pass);
    const Range held = q_->held().front();
    if (drop.rate > 0 && layout().tensor.size() > 1)
      drop.windows.push_back({1, heads_, {{held.begin / head_width(), held.end / head_width()}}});
    return drop;
  }

  std::shared_ptr<Linear> q_, k_, v_, proj_;
  Dropout weights_drop_, proj_drop_;
  int64_t heads_, width_;
};

class VitBlock : public Layer {
 public:
  VitBlock(Scope scope, const VitOptions& options, double drop_path)
      : Layer(std::move(scope)),
        norm1_(child<LayerNorm>("norm1", options.width, options.eps)),
        norm2_(child<LayerNorm>("norm2", options.width, options.eps)),
        attn_(child<VitAttention>("attn", options)),
        mlp_(child<MlpBlock>(
            "mlp", options.width,
            MlpBlockOptions{.hidden = std::llround(options.width * options.mlp_ratio),
                            .dropout = options.dropout})),
        path1_(this->scope(), "drop_path1", drop_path),
        path2_(this->scope(), "drop_path2", drop_path) {}

  // Branches come in the compute dtype; the sum has its own, so that depth does not eat small
  // changes.
  Stream forward(Stream in, const Pass& pass) const {  // [B, N, width]
    const auto here = enter();
    NormedSum first = norm1_->add(in.sum, std::move(in.branch));
    in = {};
    kernels::Branch attended = path1_(attn_->forward(std::exchange(first.y, {}), pass), pass);
    NormedSum second = norm2_->add(first.sum, std::move(attended));
    first = {};
    return {second.sum, path2_(mlp_->forward(std::exchange(second.y, {}), pass), pass)};
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    table.push_back(norm1_->row({tokens}));
    table.push_back(norm2_->row({tokens}));
    attn_->rows(table, tokens);
    mlp_->rows(table, {tokens});
  }

 private:
  std::shared_ptr<LayerNorm> norm1_, norm2_;
  std::shared_ptr<VitAttention> attn_;
  std::shared_ptr<MlpBlock> mlp_;
  DropPath path1_, path2_;
};

// A convolution from patch to patch, which is one product of all patches: those of a rank need
// their own pixels only.
class VitPatches : public Layer {
 public:
  VitPatches(Scope scope, const VitOptions& options)
      : Layer(std::move(scope)), patch_(options.patch), columns_(options.image[1] / patch_) {
    const Init init = Init::fan_in(options.channels_in * patch_ * patch_);
    weight_ =
        param("weight", {options.width, options.channels_in, patch_, patch_}, init, replicated());
    bias_ = param("bias", {options.width}, init, replicated());
  }

  // [B, C, H, W] -> [B, tokens, width]. Whole rows of patches are cut out and computed.
  at::Tensor forward(const at::Tensor& input, Range tokens) const {
    const auto here = enter();
    const int64_t first = tokens.begin / columns_, end = (tokens.end + columns_ - 1) / columns_;
    const at::Tensor rows = input.narrow(2, first * patch_, (end - first) * patch_);
    const at::Tensor x =
        as_reference()
            ? at::conv2d(cast(rows), cast(weight_), cast(bias_), patch_).flatten(2).transpose(1, 2)
            : kernels::linears(numbers_of_patches(rows), {{weight_.flatten(1), bias_}})[0];
    return x.narrow(1, tokens.begin - first * columns_, tokens.size());
  }

  LayerRow row(int64_t tokens) const {
    const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(weight_.numel());
    return Layer::row(
        fmt::format("Conv2d {} -> {}, {}x{}", weight_.size(1), weight_.size(0), patch_, patch_),
        {weight_.size(0), tokens / columns_, columns_}, flops);
  }

 private:
  // [B, C, rows p, columns p] -> [B, rows columns, C p p]: cast and put in order by one copy.
  at::Tensor numbers_of_patches(const at::Tensor& image) const {
    const at::Tensor cut = image.unflatten(3, {columns_, patch_})
                               .unflatten(2, {-1, patch_})
                               .permute({0, 2, 4, 1, 3, 5});
    const at::Tensor flat = cut.to(compute(), false, false, at::MemoryFormat::Contiguous);
    return flat.reshape({image.size(0), -1, image.size(1) * patch_ * patch_});
  }

  int64_t patch_, columns_;
  at::Tensor weight_, bias_;
};

// With a context axis the output is that of this rank's tokens: [B, own tokens, p p C'].
class Vit : public Layer {
 public:
  Vit(Scope scope, const VitOptions& options)
      : Layer(std::move(scope)),
        options_(options),
        rows_(options.image[0] / options.patch),
        columns_(options.image[1] / options.patch),
        share_(share_tokens(tokens(), layout().context, layout().method, /*causal=*/false)),
        pos_drop_(this->scope(), "pos_drop", options.dropout) {
    if (layout().holds_first()) make_embedding();
    const auto list = child<Layer>("blocks");
    for (int64_t i = 0; i < options.depth; ++i) {
      const double share = options.depth > 1 ? static_cast<double>(i) / (options.depth - 1) : 0;
      const auto name = std::to_string(i);
      block_paths_.push_back((list->scope() / name).path);
      blocks_.push_back(layout().holds(i)
                            ? list->child<VitBlock>(name, options, options.dropout * share)
                            : nullptr);
    }
    if (layout().holds(options.depth - 1)) make_head();
  }

  at::Tensor forward(const at::Tensor& input, const Pass& pass) const {  // [B, C, H, W]
    return stage({0, options_.depth}, {input}, pass)[0];
  }

  Carry stage(const Range& some, const Carry& carry, const Pass& pass) const {
    const auto here = enter();
    const Pass with = with_own_tokens(pass);
    std::vector<NamedBlock> named;
    for (int64_t i = some.begin; i < some.end; ++i) {
      const auto block = blocks_.at(static_cast<size_t>(i));
      named.push_back({block->path(),
                       [block, with](Stream in) { return block->forward(std::move(in), with); }});
    }
    const at::Tensor x =
        run_blocks(with, named, some.begin == 0 ? embedded(carry.at(0), with) : carry.at(0));
    return {some.end == options_.depth ? predicted(x) : x};
  }

  std::vector<CarrySpec> carried(const at::Tensor& input) const {
    return {{{input.size(0), own_tokens().size(), options_.width}, stream_dtype()}};
  }

  at::Tensor local_target(const at::Tensor& target) const {  // [B, C', H, W]
    return share_.is_whole() ? target : take_tokens(to_patches(target), share_, 1);
  }
  LossShare loss_share() const { return {.context = layout().context}; }
  at::Tensor whole_output(const at::Tensor& output) const {
    return share_.is_whole() ? output : to_image(join_tokens(output, share_, layout().context, 1));
  }

  std::vector<std::string> blocks() const { return block_paths_; }

  std::vector<LayerRow> layers() const {
    if (!layout().stages.empty()) {  // what other ranks hold has rows, too
      Build whole = scope().build;
      whole.layout = {};
      whole.device = c10::kMeta;
      return Vit(Scope{whole}, options_).layers();
    }
    std::vector<LayerRow> table = {row("Position embedding", {tokens(), options_.width}, 0)};
    table.push_back(patch_embed_->row(tokens()));
    for (const auto& block : blocks_) block->rows(table, tokens());
    table.push_back(norm_->row({tokens()}));
    table.push_back(head_->row({tokens()}));
    table.front().name = "pos_embed";
    return table;
  }

 private:
  int64_t tokens() const { return rows_ * columns_; }
  int64_t patch_numbers() const { return options_.channels_out * options_.patch * options_.patch; }

  void make_embedding() {
    pos_embed_ =
        param("pos_embed", {1, tokens(), options_.width}, Init::truncated(0.02), replicated());
    patch_embed_ = child<Layer>("patch_embed")->child<VitPatches>("proj", options_);
  }

  void make_head() {
    norm_ = child<LayerNorm>("norm", options_.width, options_.eps);
    head_ = child<Linear>("head", options_.width, patch_numbers(),
                          LinearOptions{.bias = false, .fp8 = false});
  }

  Pass with_own_tokens(const Pass& pass) const {
    Pass with = pass;
    with.tokens = share_;
    return with;
  }

  // Tokens of norms and residuals. One run: attention is not causal.
  Range own_tokens() const {
    return tokens_between_splits(layout(), with_own_tokens({})).ranges.front();
  }

  at::Tensor embedded(const at::Tensor& input, const Pass& pass) const {
    const Range own = own_tokens();
    const at::Tensor x = patch_embed_->forward(input, own);
    return pos_drop_(x + pos_embed_.narrow(1, own.begin, own.size()), pass).to(stream_dtype());
  }

  // With Layout::sequence the ranks of tensor put their tokens together again.
  at::Tensor predicted(const at::Tensor& x) const {
    at::Tensor y = head_->forward(norm_->forward(x));
    if (layout().sequence)
      y = comm::gather_from(y, layout().tensor, 1,
                            comm::even_shares(share_.count(), layout().tensor.size()));
    return share_.is_whole() ? to_image(y) : y;
  }

  at::Tensor to_image(const at::Tensor& x) const {  // [B, N, p p C'], channel fastest
    const int64_t p = options_.patch;
    return x.unflatten(2, {p, p, options_.channels_out})
        .unflatten(1, {rows_, columns_})
        .permute({0, 5, 1, 3, 2, 4})
        .reshape({x.size(0), options_.channels_out, rows_ * p, columns_ * p});
  }

  at::Tensor to_patches(const at::Tensor& image) const {  // the reverse
    const int64_t p = options_.patch;
    return image.unflatten(3, {columns_, p})
        .unflatten(2, {rows_, p})
        .permute({0, 2, 4, 3, 5, 1})
        .reshape({image.size(0), tokens(), patch_numbers()});
  }

  VitOptions options_;
  int64_t rows_, columns_;  // of the grid of patches
  parallel::TokenShare share_;
  Dropout pos_drop_;
  at::Tensor pos_embed_;  // these two with the first block,
  std::shared_ptr<VitPatches> patch_embed_;
  std::vector<std::string> block_paths_;           // of all blocks
  std::vector<std::shared_ptr<VitBlock>> blocks_;  // null where another rank has them
  std::shared_ptr<LayerNorm> norm_;                // and these two with the last one
  std::shared_ptr<Linear> head_;
};

void check_vit_layout(const VitOptions& o, const Layout& layout) {
  const int64_t ranks = layout.tensor.size();
  check_divides("mesh.tensor", ranks, "model.heads", o.heads,
                "a rank of the tensor axis holds whole attention heads");
  parallel::check_context_heads(o.heads / ranks, layout.context, layout.method);
  const int64_t tokens = o.image[0] / o.patch * (o.image[1] / o.patch);
  if (!layout.sequence || ranks == 1 || tokens >= ranks * layout.context.size()) return;
  throw ConfigError(
      {.what = fmt::format("mesh.tensor = {} x mesh.context = {} for {} tokens", ranks,
                           layout.context.size(), tokens),
       .why = "with parallel.sequence each rank of both axes holds at least one token of a sample",
       .fix = "set parallel.sequence=false or fewer ranks"});
}

void check_vit(const VitOptions& o) {
  check_image(o.image);
  for (int64_t side : o.image)
    check_divides("model.patch", o.patch, "a side of model.image", side,
                  "an image is cut into whole patches");
  check_divides("model.heads", o.heads, "model.width", o.width,
                "a head holds a whole number of features");
}

}  // namespace

std::unique_ptr<Model> make_vit(const VitOptions& options, const Build& build) {
  check_vit(options);
  check_vit_layout(options, build.layout);
  check_reference("vit", build);
  return std::make_unique<ModuleModel<Vit>>("vit", std::make_shared<Vit>(Scope{build}, options));
}

}  // namespace braid::nn
