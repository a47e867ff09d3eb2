// SPDX-License-Identifier: BSD-3-Clause
// The body of SwinIR: Swin blocks and the residual groups of them. Over the context axis H is that
// of this rank's band; over the tensor axis each rank has some of the heads.
//
//   auto group = layers->child<SwinGroup>("0", options, SwinGroupPlan{.depth = 6, .heads = 6,
//   .first_block = 0}, tables); tokens = group->forward(tokens, pass);   // [B, H, W, width]
#pragma once
#include <memory>
#include <vector>

#include "braid/kernels/window_attention.h"
#include "braid/nn/blocks.h"
#include "braid/nn/layers.h"
#include "braid/nn/options.h"

namespace braid::nn {

// Zeros behind the width of the model, between its blocks' layers; none as the reference.
kernels::Lanes width_lanes(const Build& build, int64_t width);

// Derived tables that all blocks share; buffers of the model, on its device. Of kernels: reference
// alone, else undefined.
struct SwinTables {
  at::Tensor index;  // relative_index
  at::Tensor masks;  // shift_masks, in the compute dtype
};

// One convolution 3x3, or three that go through a quarter of the width, under `name` in `parent`.
class SwinConvs {
 public:
  SwinConvs(Layer& parent, const std::string& name, const SwinirOptions& options);
  // [B, C, H, W]; the channels of the result may have lanes (kernels/lanes.h).
  at::Tensor forward(at::Tensor x) const;
  void rows(std::vector<LayerRow>& table, int64_t rows, int64_t columns) const;

 private:
  std::vector<std::shared_ptr<Conv2d>> convs_;
  bool packed_, in_place_;
};

// The windows of an image as the reference cuts them out: [batch, rows, columns] of them.
struct WindowGrid {
  int64_t batch, rows, columns;
  bool shifted = false;  // of a rolled image: its edges are masked
};

class WindowAttention : public Layer {
 public:
  WindowAttention(Scope scope, const SwinirOptions& options, int64_t heads, SwinTables tables);
  // x [B, H, W, width], of windows that begin at pixel (shift, shift).
  at::Tensor forward(const at::Tensor& x, int64_t shift, const Pass& pass) const;
  // windows [B rows columns, w w, width].
  at::Tensor forward_as_reference(const at::Tensor& windows, const WindowGrid& grid,
                                  const Pass& pass) const;
  void rows(std::vector<LayerRow>& table, int64_t rows, int64_t columns) const;

 private:
  // q, k, v [windows, heads, w w, head width] -> the same shape.
  at::Tensor attend_as_reference(const std::vector<at::Tensor>& qkv, const WindowGrid& grid) const;
  at::Tensor bias() const;       // [heads, w w, w w]
  ParamPart table_part() const;  // columns of the heads that this rank of tensor has
  kernels::WindowOptions windows_at(int64_t shift) const;
  int64_t width_, window_, heads_, held_heads_;
  SwinTables tables_;
  at::Tensor bias_table_;
  std::shared_ptr<Linear> qkv_, proj_;
};

struct SwinBlockPlan {
  int64_t heads = 1;
  bool shifted = false;
  double drop_path = 0;
};

class SwinBlock : public Layer {
 public:
  SwinBlock(Scope scope, const SwinirOptions& options, SwinBlockPlan plan,
            const SwinTables& tables);
  Stream forward(Stream in, const Pass& pass) const;  // [B, H, W, width]
  void rows(std::vector<LayerRow>& table, int64_t rows, int64_t columns) const;

 private:
  at::Tensor forward_as_reference(const at::Tensor& input, const Pass& pass) const;
  at::Tensor attend_as_reference(const at::Tensor& x, const Pass& pass,
                                 std::vector<at::Tensor>& named) const;
  int64_t window_, shift_;
  std::shared_ptr<LayerNorm> norm1_, norm2_;
  std::shared_ptr<WindowAttention> attn_;
  std::shared_ptr<MlpBlock> mlp_;
  DropPath path1_, path2_;
};

struct SwinGroupPlan {
  int64_t depth = 1;
  int64_t heads = 1;
  int64_t first_block =
      0;  // number of its first block in the whole body, which sets the drop-path rates
};

class SwinGroup : public Layer {
 public:
  SwinGroup(Scope scope, const SwinirOptions& options, SwinGroupPlan plan,
            const SwinTables& tables);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) const;  // [B, H, W, width]
  void rows(std::vector<LayerRow>& table, int64_t rows, int64_t columns) const;

 private:
  std::vector<std::shared_ptr<SwinBlock>> blocks_;
  std::unique_ptr<SwinConvs> conv_;
};

}  // namespace braid::nn
