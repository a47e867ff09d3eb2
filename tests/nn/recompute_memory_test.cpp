// SPDX-License-Identifier: BSD-3-Clause
// The rows of the published table of activation memory (sequence parallelism and selective
// recomputation, table 2) with values computed again, and what SwinIR keeps when its blocks are:
// to the byte, with every term that the formulas leave out listed. Of their 34 sbh 8 are the output
// of gelu, which is never kept, and 4 those of the norms, which one rank does not keep.
#include "nn/tensor_memory.h"

namespace braid::nn::tensor_memory {
namespace {

using memory::Again;

// Without scores, softmax, its dropout, masks and copies of q, k and v nothing is left out but the
// norms.
TEST(RecomputeMemory, OfALayerWithAttentionAgain) {
  for (const Sizes& z : all_sizes) {
    EXPECT_EQ(of_a_layer(z, {.ranks = 1}, Again::attention),
              22 * z.s * z.b * z.h + of_norms(z, z.s));
    for (const int t : {2, 4})
      EXPECT_EQ(of_a_layer(z, {.ranks = t}, Again::attention),
                z.s * z.b * (10 * z.h + 16 * z.h / t) + of_norms(z, z.s));
  }
}

TEST(RecomputeMemory, OfALayerWithAttentionAgainAndSharedTokens) {
  for (const Sizes& z : all_sizes)
    for (const int t : {2, 4})
      EXPECT_EQ(of_a_layer(z, {.ranks = t, .sequence = true, .regather = true}, Again::attention),
                26 * z.s * z.b * z.h / t + of_norms(z, z.s / t));
}

// The input of the layer, which with shared tokens each rank has its own part of: nothing is
// gathered for that.
TEST(RecomputeMemory, OfALayerThatIsComputedAgain) {
  for (const Sizes& z : all_sizes)
    for (const int t : {1, 2, 4}) {
      EXPECT_EQ(of_a_layer(z, {.ranks = t}, Again::blocks), 2 * z.s * z.b * z.h);
      if (t > 1)
        EXPECT_EQ(of_a_layer(z, {.ranks = t, .sequence = true}, Again::blocks),
                  2 * z.s * z.b * z.h / t);
    }
}

// Bytes that live after the forward pass of layers that are computed again, whose weights are cast.
int64_t live_with_casts(const test::Spread& spread,
                        const std::shared_ptr<kernels::Deferred>& later) {
  const c10::Device gpu(c10::kCUDA, 0);
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger, .dry = true});
  Layout layout = layout_of(spread, comm::Group(comm::dry(1, spread.ranks)));
  layout.later = later;
  Build build = test::build_on(layout, "bf16");
  build.device = gpu;
  const auto model =
      make_gpt({.vocabulary = 96, .sequence = 32, .layers = 3, .heads = 4, .width = 64}, build);
  const at::Tensor tokens = at::empty({2, 32}, at::TensorOptions(at::kLong).device(gpu));
  memory::Recompute segments({.what = Again::blocks});
  Pass pass = test::training_pass;
  pass.segments = &segments;
  const at::Tensor output = model->forward(tokens, pass);
  const memory::KindBytes by_kind = ledger.timeline(memory::cuda()).back().by_kind;
  int64_t live = 0;
  for (const int64_t bytes : by_kind) live += bytes;
  return live;
}

// Gradients that come later know the way to a parameter, not what was cast of it; nor do inputs
// that are gathered twice.
TEST(RecomputeMemory, LateGradientsKeepNoCopiesOfWeights) {
  const auto later = std::make_shared<kernels::Deferred>();
  later->set_active(true);
  for (const bool sequence : {false, true}) {
    const test::Spread plain = {.ranks = 2, .sequence = sequence};
    const test::Spread regather = {.ranks = 2, .sequence = sequence, .regather = sequence};
    EXPECT_EQ(live_with_casts(plain, later), live_with_casts(plain, nullptr));
    EXPECT_EQ(live_with_casts(regather, later), live_with_casts(regather, nullptr));
  }
}

// What a SwinIR keeps of a batch of low-resolution images in fp32.
int64_t swinir_keeps(const SwinirOptions& options, int64_t batch, Again again) {
  const c10::Device gpu(c10::kCUDA, 0);
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger, .dry = true});
  const auto model = make_swinir(options, {.seed = 1, .device = gpu});
  for (const Param& param : model->params()) mark(param.tensor, MemoryKind::parameter);
  const auto floats = at::TensorOptions(at::kFloat).device(gpu);
  const at::Tensor input = at::empty({batch, 3, options.image[0], options.image[1]}, floats);
  mark(input, MemoryKind::input);
  memory::Recompute segments({.what = again});
  const Pass pass = {.training = true, .segments = &segments};
  const int64_t before = waiting_bytes(ledger);
  const at::Tensor output = model->forward(input, pass);
  return waiting_bytes(ledger) - before;
}

// Bytes a token: the input of each block, that of each convolution, of the first and the last norm
// with mean and 1/std, and in the tail of the slope.
TEST(RecomputeMemory, OfSwinirWhoseBlocksAreComputedAgain) {
  const SwinirOptions options;  // 6 groups of 6 blocks, width 180, twice as large
  const int64_t batch = 2, tokens = batch * 64 * 64;
  const int64_t width = 4 * options.width, features = 4 * options.features, stats = 2 * 4;
  EXPECT_EQ(width, 720);
  const int64_t blocks = 36 * width, convs_of_groups = 6 * width;
  const int64_t head = 4 * options.channels + width + stats;  // conv_first; its output for the norm
  const int64_t end = width + stats + width;                  // norm; conv_after_body
  const int64_t tail = width + 2 * features + 4 * features;   // conv; slope, upsample; conv_last
  const int64_t std_of_channels = 4 * options.channels;       // that the output is multiplied by
  EXPECT_EQ(swinir_keeps(options, batch, Again::blocks),
            tokens * (blocks + convs_of_groups + head + end + tail) + std_of_channels);
}

}  // namespace
}  // namespace braid::nn::tensor_memory
