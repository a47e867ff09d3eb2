// SPDX-License-Identifier: BSD-3-Clause
// Published formulas of memory, found again by dry runs of the real model: equal to the byte once
// the terms are added that the formulas leave out. Each of those is listed.
#include <gtest/gtest.h>

#include "braid/memory/instruments.h"
#include "braid/nn/loss.h"
#include "braid/optim/optimizer.h"
#include "braid/train/measure.h"
#include "braid/train/step.h"

namespace braid {
namespace {

const c10::Device gpu(c10::kCUDA, 0);

struct Sizes {
  int64_t layers, h, s, a, vocabulary, b;
};

int64_t of_kind(const memory::KindBytes& bytes, MemoryKind kind) {
  return bytes[static_cast<size_t>(kind)];
}

// Everything in 16 bits but the optimizer, dropout everywhere, so that attention is written out.
train::RunOptions gpt_with_dropout(const Sizes& z) {
  train::RunOptions run;
  run.model.name = nn::ModelName::gpt;
  run.model.gpt = {.vocabulary = z.vocabulary,
                   .sequence = z.s,
                   .layers = z.layers,
                   .heads = z.a,
                   .width = z.h,
                   .dropout = 0.1,
                   .tied = false};
  run.data.sequence = z.s;
  run.train.loss = nn::Loss::cross_entropy;
  run.train.precision = "bf16_params";
  run.train.global_batch = z.b;
  return run;
}

// Bytes by kind when the forward pass is done and the backward pass has not begun.
memory::KindBytes after_forward(const train::RunOptions& run) {
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger, .dry = true});
  const auto model =
      nn::make_model(run.model, {.precision = train::policy_of(run.train), .device = gpu});
  for (const Param& param : model->params()) mark(param.tensor, MemoryKind::parameter);
  const data::Batch batch = train::empty_batch(run, *run.train.global_batch, gpu);
  mark(batch.input, MemoryKind::input);
  mark(batch.target, MemoryKind::input);
  at::Tensor loss;
  {
    const at::Tensor output = model->forward(batch.input, {.training = true});
    loss = nn::loss(run.train.loss, output, batch.target);
  }
  return ledger.timeline(memory::cuda()).back().by_kind;
}

// One layer by the formula of the paper on activation recomputation: sbh (34 + 5 a s / h).
int64_t layer_formula(const Sizes& z) { return z.s * z.b * (34 * z.h + 5 * z.a * z.s); }

// What it leaves out of a layer, less what is not kept here.
int64_t layer_rest(const Sizes& z) {
  const int64_t norm_statistics = 2 * 2 * 4 * z.s * z.b;  // mean and 1/std of two norms in fp32
  const int64_t causal_mask = z.s * z.s;                  // one bool a pair of positions
  const int64_t no_gelu_output = -8 * z.s * z.b * z.h;    // the backward pass computes it again
  const int64_t no_norm_outputs = -4 * z.s * z.b * z.h;   // nor are these kept
  return norm_statistics + causal_mask + no_gelu_output + no_norm_outputs;
}

// Outside of the layers: embedding dropout, last norm, input of the head, fp32 logits.
int64_t ends_formula(const Sizes& z) {
  return z.s * z.b * z.h + 4 * z.s * z.b * z.h + 4 * z.s * z.b * z.vocabulary;
}

int64_t ends_rest(const Sizes& z) {
  const int64_t norm_statistics = 2 * 4 * z.s * z.b;
  const int64_t positions = 8 * z.s;        // int64 indices of the position embedding
  const int64_t logsumexp = 4 * z.s * z.b;  // of each row of scores, in fp32
  const int64_t no_fp32_copy = -2 * z.s * z.b * z.vocabulary;  // the 16-bit scores are kept instead
  const int64_t counted = 8;  // int64 number of targets that the sum is divided by
  const int64_t no_norm_output = -2 * z.s * z.b * z.h;  // of the last norm
  return norm_statistics + positions + logsumexp + no_fp32_copy + counted + no_norm_output;
}

TEST(Formulas, ActivationsOfALayer) {
  for (const Sizes z : {Sizes{2, 64, 32, 4, 96, 3}, Sizes{2, 768, 512, 12, 40512, 4}}) {
    Sizes deeper = z;
    deeper.layers = 3;
    const int64_t layer = of_kind(after_forward(gpt_with_dropout(deeper)), MemoryKind::activation) -
                          of_kind(after_forward(gpt_with_dropout(z)), MemoryKind::activation);
    EXPECT_EQ(layer, layer_formula(z) + layer_rest(z));
  }
}

TEST(Formulas, ActivationsOfAModel) {
  for (const Sizes z : {Sizes{2, 64, 32, 4, 96, 3}, Sizes{12, 768, 512, 12, 40512, 64}}) {
    const int64_t layers = z.layers * (layer_formula(z) + layer_rest(z));
    EXPECT_EQ(of_kind(after_forward(gpt_with_dropout(z)), MemoryKind::activation),
              layers + ends_formula(z) + ends_rest(z));
  }
}

// The worked example of a GPT with 147 M parameters: 16 bytes a parameter and 74 s h L a sample.
TEST(Formulas, TheModelOf147MillionParameters) {
  const Sizes z{12, 768, 512, 12, 40512, 64};
  const int64_t counted = 147'674'112;
  const int64_t last_norm = 2 * z.h;  // which the example leaves out
  const train::RunOptions run = gpt_with_dropout(z);
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger, .dry = true});
  const auto model =
      nn::make_model(run.model, {.precision = train::policy_of(run.train), .device = gpu});
  EXPECT_EQ(model->parameters(), counted + last_norm);

  optim::Optimizer optimizer(model->params(), run.optimizer.rule);
  train::Step step(*model, optimizer, {.loss = run.train.loss});
  const data::Batch batch = train::empty_batch(run, z.b, gpu);
  step.gradients(batch, {.training = true});
  optimizer.step();
  const memory::KindBytes bytes = ledger.timeline(memory::cuda()).back().by_kind;
  const int64_t step_counters = 4 * static_cast<int64_t>(model->params().size());
  EXPECT_EQ(of_kind(bytes, MemoryKind::parameter), 2 * (counted + last_norm));
  EXPECT_EQ(of_kind(bytes, MemoryKind::gradient), 2 * (counted + last_norm));
  EXPECT_EQ(of_kind(bytes, MemoryKind::master_weight), 4 * (counted + last_norm));
  EXPECT_EQ(of_kind(bytes, MemoryKind::optimizer_state), 8 * (counted + last_norm) + step_counters);

  const int64_t own_accounting = 24'710'037'504;
  EXPECT_EQ(16 * counted + z.layers * layer_formula(z), own_accounting);
}

TEST(Formulas, Llama405bFitsIntoATest) {
  train::RunOptions run;
  run.model.name = nn::ModelName::llama;
  run.model.llama = {.layers = 126, .heads = 128, .kv_heads = 8, .width = 16384, .hidden = 53248};
  run.data.sequence = 8192;
  run.train.loss = nn::Loss::cross_entropy;
  run.train.precision = "bf16_params";
  run.train.global_batch = 1;
  const train::Measured measured = train::measure(run, {.device = gpu});
  const int64_t parameters = 405'853'388'800;
  EXPECT_EQ(of_kind(measured.backward.peak.by_kind, MemoryKind::parameter), 2 * parameters);
  // 6 FLOPs a parameter of a matrix and token, and 12 for each pair of positions and feature.
  const double tokens = 8192,
               matrices = static_cast<double>(parameters - 128256L * 16384 - 253L * 16384);
  EXPECT_EQ(measured.log.flops(), 6 * matrices * tokens + 12.0 * 126 * 16384 * tokens * tokens);
}

}  // namespace
}  // namespace braid
