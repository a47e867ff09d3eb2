// SPDX-License-Identifier: BSD-3-Clause
// The rows: what was trained, on what, how fast. Micro-batches and chunks of table B1 are those of
// the scripts that were published with the paper.
#include <fmt/format.h>

#include "braid/plan/published.h"

namespace braid::plan {
namespace {

struct GptRow {
  double billions = 0;
  int64_t heads = 0, width = 0, layers = 0;
  int64_t tensor = 1, pipeline = 1, gpus = 1, batch = 1, micro = 1, chunks = 1;
  double seconds = 0;
};

void take_tokens(train::RunOptions& run, int64_t sequence, int64_t vocabulary) {
  run.data.input_shape = run.data.target_shape = {sequence};
  run.data.sequence = sequence;
  run.data.classes = vocabulary;
  run.train.loss = nn::Loss::cross_entropy;
  run.train.clip = 1;
  run.optimizer.rule.name = optim::Algorithm::adamw;
}

train::RunOptions gpt_of(const nn::GptOptions& model, const std::string& precision) {
  train::RunOptions run;
  run.model.name = nn::ModelName::gpt;
  run.model.gpt = model;
  run.train.precision = precision;
  take_tokens(run, model.sequence, model.vocabulary);
  return run;
}

train::RunOptions megatron(const GptRow& row) {
  train::RunOptions run = gpt_of({.vocabulary = 51200,
                                  .sequence = 2048,
                                  .layers = row.layers,
                                  .heads = row.heads,
                                  .width = row.width},
                                 "bf16_params");
  run.train.master = "fp32";
  run.train.global_batch = row.batch;
  run.train.micro_batch = row.micro;
  run.mesh.tensor = row.tensor;
  run.mesh.pipeline = row.pipeline;
  run.parallel.sequence = false;
  run.parallel.chunks = row.chunks;
  if (row.chunks > 1) run.parallel.schedule = parallel::ScheduleKind::interleaved;
  if (row.pipeline > 1)
    run.parallel.split.assign(static_cast<size_t>(row.pipeline * row.chunks),
                              row.layers / (row.pipeline * row.chunks));
  run.memory.recompute = memory::Again::blocks;
  return run;
}

const std::vector<GptRow>& narayanan_rows() {
  static const std::vector<GptRow> rows = {
      {1.7, 24, 2304, 24, 1, 1, 32, 512, 16, 1, 3.53},
      {3.6, 32, 3072, 30, 2, 1, 64, 512, 16, 1, 3.70},
      {7.5, 32, 4096, 36, 4, 1, 128, 512, 16, 1, 3.70},
      {18.4, 48, 6144, 40, 8, 1, 256, 1024, 8, 1, 9.40},
      {39.1, 64, 8192, 48, 8, 2, 512, 1536, 4, 1, 14.45},
      {76.1, 80, 10240, 60, 8, 4, 1024, 1792, 2, 3, 16.06},
      {145.6, 96, 12288, 80, 8, 8, 1536, 2304, 2, 2, 24.82},
      {310.1, 128, 16384, 96, 8, 16, 1920, 2160, 1, 2, 37.61},
      {529.6, 128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 54.08},
      {1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 1, 1, 102.63}};
  return rows;
}

void add_narayanan(std::vector<PublishedTime>& rows) {
  for (const GptRow& row : narayanan_rows()) {
    PublishedTime made;
    made.table = "B1";
    made.run =
        fmt::format("GPT {} B, tensor {}, pipeline {}", row.billions, row.tensor, row.pipeline);
    made.cluster = "dgx_a100";
    made.world = row.gpus;
    made.published = row.seconds;
    made.options = megatron(row);
    made.attention = Attention::written_out;
    made.fused = Fused::loss;
    made.fitted = row.billions == 7.5;
    rows.push_back(std::move(made));
  }
}

struct Layer {
  const char* run;
  bool sequence;
  memory::Again again;
  double forward, backward;
};

PublishedTime korthikanti(bool sequence, memory::Again again) {
  PublishedTime made;
  made.table = "B2";
  made.cluster = "dgx_a100";
  made.world = 8;
  made.options = megatron({22, 64, 6144, 48, 8, 1, 8, 4, 4});
  made.options.parallel.sequence = sequence;
  made.options.memory.recompute = again;
  made.attention = Attention::written_out;
  made.fused = Fused::loss;
  return made;
}

void add_korthikanti(std::vector<PublishedTime>& rows) {
  using memory::Again;
  const auto add = [&](std::string run, PublishedTime made, Figure figure, double published) {
    made.run = std::move(run);
    made.figure = figure;
    made.published = published;
    rows.push_back(std::move(made));
  };
  add("GPT 22 B, full recompute", korthikanti(false, Again::blocks), Figure::step, 1.42);
  add("GPT 22 B, sequence, selective", korthikanti(true, Again::attention), Figure::step, 1.10);
  for (const Layer& layer : std::vector<Layer>{{"base", false, Again::none, 7.7, 11.9},
                                               {"sequence", true, Again::none, 7.2, 11.8},
                                               {"full", false, Again::blocks, 7.7, 19.5},
                                               {"selective", false, Again::attention, 7.7, 13.2},
                                               {"both", true, Again::attention, 7.2, 13.1}}) {
    const PublishedTime one = korthikanti(layer.sequence, layer.again);
    add(fmt::format("a block of 22 B: {}", layer.run), one, Figure::layer_forward, layer.forward);
    add(fmt::format("a block of 22 B: {}", layer.run), one, Figure::layer_backward, layer.backward);
  }
}

void add_torchtitan(std::vector<PublishedTime>& rows) {
  train::RunOptions run;
  run.model.name = nn::ModelName::llama;
  run.train.precision = "bf16";
  run.train.zero = 3;
  run.train.local_batch = 2;
  run.memory.recompute = memory::Again::matmuls;
  take_tokens(run, 8192, 128256);
  PublishedTime made;
  made.table = "B3";
  made.cluster = "dgx_h100";
  made.world = 8;
  made.figure = Figure::tokens;
  made.options = run;
  made.bandwidth = 2.4e12;
  made.attention = Attention::flash;
  // It kept every second product of q, k, v, out, gate, up and down. To braid q, k and v are one,
  // and so are gate and up: k, out and up were computed again, and braid computes out.
  made.products_again = (1024 + 4096 + 14336) / 4096.0;
  made.fused = Fused::none;
  made.run = "Llama 3.1 8 B, ZeRO-3 of 8, eager";
  made.published = 5762;
  rows.push_back(made);
  made.run = "Llama 3.1 8 B, ZeRO-3 of 8, compiled";
  made.published = 6667;
  made.fused = Fused::all;
  made.note = "braid's kernels are fused, but it is no compiler";
  rows.push_back(made);
  made.run = "Llama 3.1 8 B, ZeRO-3 of 8, compiled, fp8";
  made.published = 8532;
  made.options.train.fp8 = Fp8::tensor;
  made.note = "weights travel in bf16 here, in fp8 there";
  rows.push_back(made);
}

struct MptRow {
  const char* name;
  const char* cluster;
  int64_t width, layers, heads, gpus, micro, steps;
  bool recompute;
  double tokens;
  bool fitted = false;
};

void add_mpt(std::vector<PublishedTime>& rows) {
  for (const MptRow& row :
       std::vector<MptRow>{{"7b", "dgx_h100", 4096, 32, 32, 8, 6, 1, false, 10643, true},
                           {"13b", "dgx_h100", 5120, 40, 40, 8, 2, 1, false, 4792},
                           {"30b", "dgx_h100", 7168, 48, 56, 8, 3, 21, true, 2002, true},
                           {"70b", "dgx_h100", 8192, 80, 64, 64, 8, 4, true, 1039},
                           {"7b", "dgx_a100", 4096, 32, 32, 8, 6, 2, false, 4641, true},
                           {"30b", "dgx_a100", 7168, 48, 56, 8, 3, 21, true, 916, true}}) {
    PublishedTime made;
    made.table = "B9";
    made.run = fmt::format("MPT {}, ZeRO-3 of {}, micro {}{}", row.name, row.gpus, row.micro,
                           row.recompute ? ", recompute" : "");
    made.cluster = row.cluster;
    made.world = row.gpus;
    made.figure = Figure::tokens;
    made.published = row.tokens;
    made.options = gpt_of({.vocabulary = 50368,
                           .sequence = 2048,
                           .layers = row.layers,
                           .heads = row.heads,
                           .width = row.width},
                          "bf16");
    made.options.train.zero = 3;
    made.options.train.micro_batch = row.micro;
    made.options.train.global_batch = row.gpus * row.micro * row.steps;
    if (row.recompute) made.options.memory.recompute = memory::Again::blocks;
    made.fitted = row.fitted;
    made.attention = Attention::flash;
    made.fused = Fused::loss;
    rows.push_back(std::move(made));
  }
}

void add_vit_times(std::vector<PublishedTime>& rows) {
  const auto add = [&](const char* run, const char* precision, double published, const char* note) {
    PublishedTime made;
    made.table = "NERSC";
    made.run = run;
    made.cluster = "perlmutter";
    made.figure = Figure::samples;
    made.published = published;
    made.options.model.name = nn::ModelName::vit;
    made.options.model.kernels = nn::Kernels::reference;
    made.options.train.loss = nn::Loss::relative_l2;
    made.options.train.precision = precision;
    made.options.train.global_batch = 16;
    made.options.optimizer.rule.name = optim::Algorithm::adam;
    made.note = note;
    made.counts = *note == 0;
    rows.push_back(std::move(made));
  };
  add("ViT short, TF32, read in line", "tf32", 8.89, "input-bound");
  add("ViT short, TF32", "tf32", 12.00, "");
  add("ViT short, TF32 off", "fp32", 9.23, "");
  add("ViT short, fp16", "fp16", 37.0, "input-bound");
  add("ViT short, fp16, compiled", "fp16", 42.2, "input-bound");
  add("ViT mp, 4 replicas, fp16, compiled", "fp16", 51.25, "");
  rows.back().world = 4;
  rows.back().options.model.vit.width = 1536;
  rows.back().options.train.global_batch = 64;
  rows.back().cluster = "perlmutter_80gb";
}

struct ModelRow {
  const char* model;
  const char* cluster;
  int64_t nvlink, gpus, batch, data, tensor, pipeline;
  double seconds;
};

void add_model_outputs(std::vector<PublishedTime>& rows) {
  for (const ModelRow& row :
       std::vector<ModelRow>{{"175 B", "dgx_a100", 4, 512, 1024, 8, 4, 16, 22.469},
                             {"1 T", "dgx_a100", 8, 1024, 4096, 2, 8, 64, 230.837},
                             {"1 T", "dgx_a100", 8, 4096, 4096, 16, 8, 32, 62.969},
                             {"1 T", "dgx_a100", 8, 16384, 4096, 32, 16, 32, 20.408},
                             {"1 T", "dgx_b200", 8, 4096, 4096, 8, 4, 128, 9.039},
                             {"1 T", "dgx_b200", 64, 16384, 4096, 512, 8, 4, 2.893}}) {
    const bool small = std::string_view(row.model) == "175 B";
    PublishedTime made;
    made.table = "B7";
    made.run = fmt::format("GPT {}, data {}, tensor {}, pipeline {}", row.model, row.data,
                           row.tensor, row.pipeline);
    made.cluster = row.cluster;
    made.world = row.gpus;
    made.gpus_per_node = row.nvlink;
    made.published = row.seconds;
    made.options = megatron({small ? 175.0 : 1000.0, small ? 96 : 160, small ? 12288 : 25600,
                             small ? 96 : 128, row.tensor, row.pipeline, row.gpus, row.batch, 1});
    made.options.memory.recompute = memory::Again::none;
    made.options.train.zero = 1;
    made.counts = false;
    made.note = "output of a model of NERSC, not a measurement";
    rows.push_back(std::move(made));
  }
}

void add_mlp(std::vector<PublishedTime>& rows) {
  PublishedTime made;
  made.table = "MPCDF";
  made.run = "MLP, 8 replicas";
  made.cluster = "raven";
  made.world = 8;
  made.published = 0.034;
  made.options.model.name = nn::ModelName::mlp;
  made.options.data.kind = data::Kind::spiral;
  made.options.train.loss = nn::Loss::cross_entropy;
  made.options.train.local_batch = 32;
  made.options.optimizer.rule.name = optim::Algorithm::adam;
  made.counts = false;
  made.note = "a Python framework's own time, not the GPU's";
  rows.push_back(std::move(made));
}

}  // namespace

const std::vector<PublishedTime>& published_times() {
  static const std::vector<PublishedTime> all = [] {
    std::vector<PublishedTime> rows;
    add_narayanan(rows);
    add_korthikanti(rows);
    add_torchtitan(rows);
    add_mpt(rows);
    add_vit_times(rows);
    add_model_outputs(rows);
    add_mlp(rows);
    return rows;
  }();
  return all;
}

const std::vector<PublishedCount>& published_counts() {
  static const std::vector<PublishedCount> all = [] {
    std::vector<PublishedCount> rows;
    for (const GptRow& row : narayanan_rows())
      rows.push_back({fmt::format("GPT of width {}, {} layers", row.width, row.layers),
                      fmt::format("{:.1f}", row.billions), megatron(row)});
    const auto llama = [&](int64_t layers, int64_t heads, int64_t width, int64_t hidden,
                           const char* printed) {
      train::RunOptions run;
      run.model.name = nn::ModelName::llama;
      run.model.llama.layers = layers;
      run.model.llama.heads = heads;
      run.model.llama.width = width;
      run.model.llama.hidden = hidden;
      rows.push_back({fmt::format("Llama of width {}, {} layers", width, layers), printed, run});
    };
    llama(32, 32, 4096, 14336, "8,030,261,248");
    llama(80, 64, 8192, 28672, "70,553,706,496");
    llama(126, 128, 16384, 53248, "405,853,388,800");
    const auto vit = [&](int64_t width, int64_t patch, const char* printed) {
      train::RunOptions run;
      run.model.name = nn::ModelName::vit;
      run.model.vit.width = width;
      run.model.vit.patch = patch;
      rows.push_back(
          {fmt::format("weather ViT of width {}, patch {}", width, patch), printed, run});
    };
    vit(384, 8, "23,832,960");
    vit(1536, 8, "350,135,808");
    vit(1536, 4, "365,849,088");
    return rows;
  }();
  return all;
}

}  // namespace braid::plan
