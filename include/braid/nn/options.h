// SPDX-License-Identifier: BSD-3-Clause
// The `model:` section of a config: a name and the sizes of that model.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/core/options.h"
#include "braid/nn/model.h"

namespace braid::nn {

// own: made by the program that trains it (train::fit); no command can make it.
enum class ModelName { mlp, vit, swinir, gpt, llama, own };

struct MlpOptions {
  int64_t inputs = 2;
  std::vector<int64_t> hidden = {64, 32, 16};
  int64_t outputs = 2;
  double dropout = 0.2;
};

struct VitOptions {
  std::vector<int64_t> image = {360, 720};
  int64_t patch = 8;
  int64_t channels_in = 20, channels_out = 20;
  int64_t width = 384, depth = 12, heads = 8;
  double mlp_ratio = 4;
  double dropout = 0;  // also of attention and drop-path, as in the reference
  double eps = 1e-6;
};

enum class Upsampler { pixelshuffle, pixelshuffledirect, nearest_conv, none };
enum class Residual { conv1, conv3 };

struct SwinirOptions {
  std::vector<int64_t> image = {
      64, 64};  // size of a low-resolution input: for the table of layers; any other runs too
  int64_t channels = 3;
  int64_t scale = 2;
  int64_t window = 8;
  int64_t width = 180;
  std::vector<int64_t> depths = {6, 6, 6, 6, 6, 6};
  std::vector<int64_t> heads = {6, 6, 6, 6, 6, 6};
  double mlp_ratio = 2;
  double drop_path = 0.1;
  Upsampler upsampler = Upsampler::pixelshuffle;
  Residual residual = Residual::conv1;
  int64_t features = 64;
  std::vector<double> mean = {6.3024, 278.3945, 18.4262};
  std::vector<double> std = {3.7376, 21.0588, 16.4687};
};

enum class Router {
  switch_top_1,  // the best expert, times its probability
  gshard,        // the best two; the second one at random, by its share of the gate
  top_k,
  noisy_top_k,   // noise of a learned size is added to the scores
  expert_choice  // experts choose tokens
};

// A mixture of experts in place of the MLP of some blocks. A sample is a routing group: nothing
// depends on how a batch is split.
struct MoeOptions {
  int64_t experts = 0;  // 0: the MLP stays
  Router router = Router::top_k;
  std::optional<int64_t> top_k = {};  // experts of a token; unset: 1 of switch, else 2
  bool normalize = true;              // top_k: the gates of a token add up to 1
  // An expert takes up to tokens / experts * capacity * top_k tokens of a sample; unset: all.
  std::optional<double> capacity = {};
  int64_t min_capacity = 1;
  double aux_loss = 0.01;        // of switch, gshard and top_k
  double importance_loss = 0.1;  // of noisy_top_k
  double load_loss = 0.1;
  double z_loss = 0.001;
  double jitter = 0;   // the router's input is multiplied by 1 - jitter ... 1 + jitter
  int64_t shared = 0;  // experts that every token goes through, beside those it is routed to
  int64_t hidden = 0;  // of an expert; 0: of the MLP in whose place it stands
  int64_t every = 1;   // blocks every - 1, 2 every - 1, ... have a mixture

  int64_t choices() const { return top_k.value_or(router == Router::switch_top_1 ? 1 : 2); }
  bool in_block(int64_t block) const { return experts > 0 && (block + 1) % every == 0; }
};

struct GptOptions {
  int64_t vocabulary = 50257, sequence = 1024;
  int64_t layers = 12, heads = 12, width = 768;
  double dropout = 0;
  double eps = 1e-5;
  bool tied = true;
  MoeOptions moe = {};
};

struct LlamaOptions {
  int64_t vocabulary = 128256, sequence = 8192;
  int64_t layers = 32, heads = 32, kv_heads = 8, width = 4096, hidden = 14336;
  double rope_theta = 500000;
  double rope_factor = 8, rope_low = 1, rope_high = 4;  // Llama-3 scaling; factor 1: none
  int64_t rope_original = 8192;
  double eps = 1e-5;
  bool tied = false;
  MoeOptions moe = {};
};

struct OwnOptions {
  std::string of;  // nn::Model::name()
};

struct ModelOptions {
  ModelName name = ModelName::mlp;
  Kernels kernels = Kernels::braid;  // of make_model; else Build says
  MlpOptions mlp;
  VitOptions vit;
  SwinirOptions swinir;
  GptOptions gpt;
  LlamaOptions llama;
  OwnOptions own;
};

void describe(Fields& fields, MlpOptions& options);
void describe(Fields& fields, VitOptions& options);
void describe(Fields& fields, SwinirOptions& options);
void describe(Fields& fields, MoeOptions& options);
void describe(Fields& fields, GptOptions& options);
void describe(Fields& fields, LlamaOptions& options);
void describe(Fields& fields, OwnOptions& options);
void describe(Fields& fields,
              ModelOptions& options);  // name, then the fields of that model, flat in the section

// Checks the sizes (ConfigError) and builds. One per model in its own file; make_model picks.
std::unique_ptr<Model> make_mlp(const MlpOptions& options, const Build& build);
std::unique_ptr<Model> make_vit(const VitOptions& options, const Build& build);
std::unique_ptr<Model> make_swinir(const SwinirOptions& options, const Build& build);
std::unique_ptr<Model> make_gpt(const GptOptions& options, const Build& build);
std::unique_ptr<Model> make_llama(const LlamaOptions& options, const Build& build);
std::unique_ptr<Model> make_model(const ModelOptions& options, const Build& build);

}  // namespace braid::nn
