// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "braid/kernels/attention.h"
#include "braid/nn/options.h"
#include "check.h"
#include "module_model.h"

namespace braid::nn {
namespace {

class VitAttention : public Layer {
 public:
  VitAttention(Scope scope, const VitOptions& options)
      : Layer(std::move(scope)),
        q_(child<Linear>("q", options.width, options.width)),
        k_(child<Linear>("k", options.width, options.width)),
        v_(child<Linear>("v", options.width, options.width)),
        proj_(child<Linear>("proj", options.width, options.width)),
        weights_drop_(this->scope(), "attn_drop", options.dropout),
        proj_drop_(this->scope(), "proj_drop", options.dropout),
        heads_(options.heads),
        width_(options.width) {}

  at::Tensor forward(const at::Tensor& x, const Pass& pass) const {  // [B, N, width]
    const auto here = enter();
    const at::Tensor y =
        kernels::attention(by_head(q_->forward(x)), by_head(k_->forward(x)),
                           by_head(v_->forward(x)), {.drop = weights_drop_.at(pass)});
    return proj_drop_(proj_->forward(y.transpose(1, 2).flatten(2)), pass);
  }

  void rows(std::vector<LayerRow>& table, int64_t tokens) const {
    for (const auto& linear : {q_, k_, v_}) table.push_back(linear->row({tokens}));
    const double pairs = static_cast<double>(tokens) * static_cast<double>(tokens);
    table.push_back(Layer::row(fmt::format("Attention {} heads x {}", heads_, width_ / heads_),
                               {tokens, width_}, 4 * pairs * static_cast<double>(width_)));
    table.push_back(proj_->row({tokens}));
  }

 private:
  at::Tensor by_head(const at::Tensor& x) const {  // [B, N, width] -> [B, heads, N, head width]
    return x.unflatten(2, {heads_, width_ / heads_}).transpose(1, 2);
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

  // Branches come in the compute dtype; the sum keeps that of the parameters, so that depth does
  // not eat small changes.
  at::Tensor forward(const at::Tensor& input, const Pass& pass) const {  // [B, N, width]
    const auto here = enter();
    const at::Tensor x = input + path1_(attn_->forward(norm1_->forward(input), pass), pass);
    return x + path2_(mlp_->forward(norm2_->forward(x), pass), pass);
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

class Vit : public Layer {
 public:
  Vit(Scope scope, const VitOptions& options)
      : Layer(std::move(scope)),
        options_(options),
        rows_(options.image[0] / options.patch),
        columns_(options.image[1] / options.patch),
        pos_embed_(param("pos_embed", {1, tokens(), options.width}, Init::truncated(0.02))),
        pos_drop_(this->scope(), "pos_drop", options.dropout) {
    patch_embed_ = child<Layer>("patch_embed")
                       ->child<Conv2d>("proj", options.channels_in, options.width,
                                       Conv2dOptions{options.patch, options.patch, 0});
    const auto list = child<Layer>("blocks");
    for (int64_t i = 0; i < options.depth; ++i) {
      const double share = options.depth > 1 ? static_cast<double>(i) / (options.depth - 1) : 0;
      blocks_.push_back(list->child<VitBlock>(std::to_string(i), options, options.dropout * share));
    }
    norm_ = child<LayerNorm>("norm", options.width, options.eps);
    head_ =
        child<Linear>("head", options.width, options.channels_out * options.patch * options.patch,
                      LinearOptions{.bias = false});
  }

  at::Tensor forward(const at::Tensor& input,
                     const Pass& pass) const {  // [B, C, H, W] -> [B, C', H, W]
    const auto here = enter();
    at::Tensor x = patch_embed_->forward(input).flatten(2).transpose(1, 2);  // [B, N, width]
    x = pos_drop_(x + pos_embed_, pass);
    for (const auto& block : blocks_)
      x = run_block(pass.blocks, block->path(), x,
                    [&](const at::Tensor& in) { return block->forward(in, pass); });
    return to_image(head_->forward(norm_->forward(x)));
  }

  std::vector<std::string> blocks() const { return paths_of(blocks_); }

  std::vector<LayerRow> layers() const {
    std::vector<LayerRow> table = {row("Position embedding", {tokens(), options_.width}, 0)};
    table.push_back(patch_embed_->row(rows_, columns_));
    for (const auto& block : blocks_) block->rows(table, tokens());
    table.push_back(norm_->row({tokens()}));
    table.push_back(head_->row({tokens()}));
    table.front().name = "pos_embed";
    return table;
  }

 private:
  int64_t tokens() const { return rows_ * columns_; }

  at::Tensor to_image(const at::Tensor& x) const {  // [B, N, p p C'], channel fastest
    const int64_t p = options_.patch;
    return x.view({x.size(0), rows_, columns_, p, p, options_.channels_out})
        .permute({0, 5, 1, 3, 2, 4})
        .reshape({x.size(0), options_.channels_out, rows_ * p, columns_ * p});
  }

  VitOptions options_;
  int64_t rows_, columns_;  // of the grid of patches
  at::Tensor pos_embed_;
  Dropout pos_drop_;
  std::shared_ptr<Conv2d> patch_embed_;
  std::vector<std::shared_ptr<VitBlock>> blocks_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> head_;
};

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
  return std::make_unique<ModuleModel<Vit>>("vit", std::make_shared<Vit>(Scope{build}, options));
}

}  // namespace braid::nn
