// SPDX-License-Identifier: BSD-3-Clause
// What bands save: activations of all ranks together are those of one process and the halo rows,
// to the byte, in dry runs.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "braid/memory/instruments.h"
#include "braid/nn/options.h"

namespace braid::nn {
namespace {

const c10::Device band_gpu(c10::kCUDA, 0);

SwinirOptions field_swinir(int64_t rows, int64_t columns) {
  return {.image = {rows, columns}, .drop_path = 0};
}

// One rank of `ranks`, dry, up to its backward pass.
struct DryBand {
  DryBand(const SwinirOptions& options, int rank, int ranks, const std::string& policy = "fp32") {
    const memory::Instruments on({.ledger = &ledger, .dry = true});
    const comm::Group context = ranks == 1 ? comm::Group() : comm::Group(comm::dry(rank, ranks));
    const auto model = make_swinir(
        options,
        {.precision = precision(policy), .device = band_gpu, .layout = {.context = context}});
    for (const Param& param : model->params()) mark(param.tensor, MemoryKind::parameter);
    for (const at::Tensor& buffer : model->module()->buffers()) mark(buffer, MemoryKind::parameter);
    const at::Tensor input =
        at::zeros({1, 3, options.image[0], options.image[1]}, at::TensorOptions().device(band_gpu));
    mark(input, MemoryKind::input);
    const at::Tensor output = model->forward(input, {.training = true});
    activations =
        ledger.timeline(memory::cuda()).back().by_kind[static_cast<size_t>(MemoryKind::activation)];
    output.sum().backward();
    peak = ledger.peak(memory::cuda());
  }
  memory::Ledger ledger;
  int64_t activations = 0;
  memory::Peak peak;
};

// What bands keep besides: in fp32, of one sample.
int64_t halo_bytes(const SwinirOptions& o, int64_t columns, int64_t ranks) {
  const int64_t seams = ranks - 1, row = 4 * columns;
  const auto groups = static_cast<int64_t>(o.depths.size());
  const int64_t shifted = groups;                        // blocks of two: one each
  int64_t bytes = shifted * o.image[0] * o.width * row;  // their norm1 comes in another band
  bytes += 2 * ranks * o.channels * row;  // conv_first: the input with a row on each side
  bytes += 2 * seams * (groups + 2) * o.width * row;  // convs of groups, after and before the body
  bytes += 2 * seams * o.features * row;              // upsample.0
  bytes += 2 * seams * o.features * 2 * row;          // conv_last, of twice the columns
  return bytes;
}

TEST(SwinirMemory, BandsKeepTheActivationsOfOneProcessAndTheirHalos) {
  SwinirOptions options = field_swinir(48, 40);
  options.depths = {2, 2};
  options.heads = {6, 6};
  const int64_t whole = DryBand(options, 0, 1).activations;
  for (const int ranks : {2, 3, 4}) {
    int64_t sum = 0, largest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t mine = DryBand(options, rank, ranks).activations;
      sum += mine;
      largest = std::max(largest, mine);
    }
    EXPECT_EQ(sum, whole + halo_bytes(options, 40, ranks)) << ranks << " bands";
    const int64_t windows = 6, most = (windows + ranks - 1) / ranks;
    EXPECT_LT(largest, whole * most / windows + halo_bytes(options, 40, ranks));
  }
}

// What a rank takes at most; the first ranks have the largest bands, the second one two seams.
double largest_band(const SwinirOptions& options, int ranks, const char* policy) {
  int64_t largest = 0;
  for (int rank = 0; rank < std::min(ranks, 2); ++rank)
    largest = std::max(largest, DryBand(options, rank, ranks, policy).peak.bytes);
  return static_cast<double>(largest);
}

// A sample that no GPU holds, 1440 x 2880 from 720 x 1440: the table of docs/spatial.md.
TEST(SwinirMemory, ASampleLargerThanAGpuIsSpreadOverFour) {
  const SwinirOptions options = field_swinir(720, 1440);
  const double gib = 1 << 30;
  for (const auto& [policy, written] : {std::pair("fp32", 50.6), {"bf16", 32.8}}) {
    const double one = largest_band(options, 1, policy);
    std::printf("%s: 1 rank %.1f GiB", policy, one / gib);
    for (const int ranks : {2, 4, 8}) {
      const double band = largest_band(options, ranks, policy);
      std::printf(", %d bands %.1f GiB", ranks, band / gib);
      const int64_t most = (90 + ranks - 1) / ranks;  // of 90 rows of windows
      EXPECT_LT(band, 1.1 * one * static_cast<double>(most) / 90);
      if (ranks == 4) {
        EXPECT_NEAR(band / gib, written, 0.5) << "docs/spatial.md says so";
      }
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace braid::nn
