// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/published_memory.h"

#include <fmt/format.h>

#include <limits>

#include "braid/plan/allocator.h"
#include "braid/train/measure.h"

namespace braid::plan {
namespace {

constexpr double gib = 1 << 30;
constexpr int64_t mib = 1 << 20;

int64_t in_bytes(double gibibytes) { return static_cast<int64_t>(gibibytes * gib); }

// Bytes that cudaMemGetInfo shows, of the driver's context, and of cuBLAS' workspace: 32 MiB on
// Hopper, two of 4 MiB and eight of 16 KiB before.
PublishedMemory on_h100() {
  return {.gpu = "H100 80 GB",
          .memory = in_bytes(79.1),
          .context = 600 * mib,
          .gemm_workspace = 32 * mib};
}
PublishedMemory on_a100(bool large) {
  return {.gpu = large ? "A100 80 GB" : "A100 40 GB",
          .memory = in_bytes(large ? 79.15 : 39.39),
          .context = 500 * mib,
          .gemm_workspace = 8 * mib + int64_t{128} * 1024};
}

// SwinIR x2 of ERA5, by the NREL tutorial.
train::RunOptions swinir_run(const std::vector<int64_t>& image, int64_t batch,
                             const std::string& precision) {
  train::RunOptions run;
  run.model.name = nn::ModelName::swinir;
  run.model.kernels = nn::Kernels::reference;
  run.model.swinir.image = image;
  run.train.local_batch = batch;
  run.train.precision = precision;
  run.train.loss = nn::Loss::l1;
  return run;
}

// These scripts clear the gradients before the update: the optimizer never makes a state.
train::RunOptions without_states(train::RunOptions run) {
  run.optimizer.rule.name = optim::Algorithm::sgd;
  return run;
}

train::RunOptions recomputed(train::RunOptions run) {
  run.memory.recompute = memory::Again::blocks;
  return run;
}

PublishedMemory of_swinir(std::string run, std::optional<double> published, double reserved,
                          train::RunOptions options, int64_t world = 1) {
  PublishedMemory row = on_h100();
  row.run = "SwinIR, " + std::move(run);
  row.gib = published;
  row.reserved_gib = reserved;
  row.options = std::move(options);
  row.world = world;
  return row;
}

std::vector<PublishedMemory> swinir_rows() {
  const std::vector<int64_t> full = {360, 720};
  const train::RunOptions crops = swinir_run({64, 64}, 16, "fp32"),
                          fp32 = swinir_run(full, 1, "fp32"), fp16 = swinir_run(full, 1, "fp16");
  train::RunOptions sharded = recomputed(without_states(fp32));
  sharded.train.zero = 3;
  return {of_swinir("16 crops, fp32", 23.39, 24.47, without_states(crops)),
          of_swinir("one slice, fp32", {}, 0, without_states(fp32)),
          of_swinir("one slice, fp16", 67.04, 69.26, fp16),
          of_swinir("one slice, fp16, recompute", 11.04, 12.27, recomputed(fp16)),
          of_swinir("one slice, fp16, recompute, 4 replicas", 10.99, 12.05, recomputed(fp16), 4),
          of_swinir("one slice, fp32, recompute, ZeRO-3 of 4", 11.92, 13.85, sharded, 4)};
}

// The wide weather ViT of the NERSC course, 16 samples a rank of data. Figures are of the second
// step, between forward and backward pass, by the driver. Those runs were compiled, which changes
// what is kept; here the operators run one by one.
train::RunOptions vit_run(int64_t tensor) {
  train::RunOptions run;
  run.model.name = nn::ModelName::vit;
  run.model.kernels = nn::Kernels::reference;
  run.model.vit.width = 1536;
  run.train.global_batch = 64;
  run.train.precision = "fp16";
  run.train.loss = nn::Loss::relative_l2;
  run.optimizer.rule.name = optim::Algorithm::adam;
  run.mesh.tensor = tensor;
  run.parallel.sequence = false;
  return run;
}

PublishedMemory of_vit(PublishedMemory row, std::string run, std::optional<double> published,
                       int64_t tensor, std::string note = {}) {
  row.run = "ViT mp, " + std::move(run);
  row.gib = published;
  row.whole_device = true;
  row.options = vit_run(tensor);
  row.world = 4 * tensor;
  row.note = std::move(note);
  return row;
}

// Before its first step the last run had 3.57 GiB in use: 0.71 of weights and gradient buckets,
// 0.49 of context. The other 2.4 are not of tensors; what of, nobody said.
std::vector<PublishedMemory> vit_rows() {
  return {of_vit(on_a100(true), "fp16, 4 replicas", 53.377, 1),
          of_vit(on_a100(false), "fp16, 4 replicas", {}, 1),
          of_vit(on_a100(false), "fp16, tensor 4 x 4 replicas", 36.152, 4,
                 "2.4 GiB of it in use before the first step, not by tensors")};
}

std::string cell_of(int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / gib);
}

std::string verdict_of(const PublishedMemory& row, const PredictedMemory& predicted) {
  if (!row.gib)
    return fits(row, predicted) ? "fits, though it did not" : "out of memory, as it was";
  const double share = static_cast<double>(compared(row, predicted)) / gib / *row.gib - 1;
  return fmt::format("{:+.1f} %{}", 100 * share, fits(row, predicted) ? "" : ", out of memory");
}

std::string published_cell(double value) { return value > 0 ? fmt::format("{:.2f}", value) : "-"; }

std::string line_of(const PublishedMemory& row) {
  const PredictedMemory theirs = predict(row), ours = predict(row, nn::Kernels::braid);
  return fmt::format("{:<47} {:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}{}\n", row.run,
                     row.gpu, row.gib ? published_cell(*row.gib) : "OOM",
                     row.whole_device ? "device" : "allocated", cell_of(theirs.allocated),
                     published_cell(row.reserved_gib), cell_of(theirs.reserved),
                     cell_of(theirs.device), cell_of(ours.allocated), verdict_of(row, theirs),
                     row.note.empty() ? "" : "; " + row.note);
}

}  // namespace

const std::vector<PublishedMemory>& published_memory() {
  static const std::vector<PublishedMemory> all = [] {
    std::vector<PublishedMemory> rows = swinir_rows();
    for (const PublishedMemory& row : vit_rows()) rows.push_back(row);
    return rows;
  }();
  return all;
}

PredictedMemory predict(const PublishedMemory& row, nn::Kernels kernels) {
  train::RunOptions options = row.options;
  options.model.kernels = kernels;
  if (kernels == nn::Kernels::braid) options.parallel = {};
  const c10::Device gpu(c10::kCUDA, 0);
  memory::Ledger ledger;
  train::watch_step(ledger, options, {.device = gpu, .world = row.world});
  CachingAllocator allocator;
  for (uint64_t thread = 0; thread < 2; ++thread)  // forward and backward pass
    allocator.take(std::numeric_limits<uint64_t>::max() - thread, row.gemm_workspace);
  replay(allocator, ledger.history(memory::place_of(gpu)));
  return {.allocated = allocator.peak_allocated(),
          .reserved = allocator.peak_reserved(),
          .device = allocator.peak_reserved() + row.context,
          .peak = ledger.peak(memory::place_of(gpu))};
}

int64_t compared(const PublishedMemory& row, const PredictedMemory& predicted) {
  return row.whole_device ? predicted.device : predicted.allocated;
}

bool fits(const PublishedMemory& row, const PredictedMemory& predicted) {
  return predicted.device <= row.memory;
}

std::string published_memory_table() {
  std::string text = fmt::format("{:<47} {:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n",
                                 "GiB", "on", "published", "which is", "allocated", "publ.res.",
                                 "reserved", "device", "braid's", "difference");
  for (const PublishedMemory& row : published_memory()) text += line_of(row);
  return text;
}

}  // namespace braid::plan
