// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/terms.h"

#include <fmt/format.h>

#include <cmath>

#include "braid/core/error.h"
#include "braid/core/units.h"
#include "braid/train/measure.h"

namespace braid::plan {
namespace {

constexpr double scratch_reserve = 1.2;

Accounting accounting(const GptTerms& terms, int64_t parameters, int64_t optimizer_bytes) {
  Accounting a;
  a.parameters = parameters;
  a.weights = 2 * parameters;
  a.gradients = 2 * parameters;
  a.optimizer = optimizer_bytes * parameters;
  a.states = a.weights + a.gradients + a.optimizer;
  a.total = a.states + terms.activations;
  a.with_logits = a.total + terms.logits;
  a.with_reserve = static_cast<int64_t>(scratch_reserve * static_cast<double>(a.total));
  return a;
}

struct TermsTable {
  std::string text;
  void row(const std::string& term, const std::string& how, const std::string& published,
           const std::string& exact, const std::string& dry) {
    text += fmt::format("{:<26} {:<34} {:>16} {:>16} {:>16}\n", term, how, published, exact, dry);
  }
  void row(const std::string& term, const std::string& how, int64_t published, int64_t exact,
           int64_t dry) {
    row(term, how, with_commas(published), with_commas(exact), with_commas(dry));
  }
  void line() { text += fmt::format("{:-<112}\n", ""); }
};

int64_t kind_bytes(const memory::Peak& peak, MemoryKind kind) {
  return peak.by_kind[static_cast<size_t>(kind)];
}

std::string parameters_text(const GptTerms& t, int64_t built) {
  const auto row = [](const std::string& name, int64_t count) {
    return fmt::format("  {:<44} {:>16}\n", name, with_commas(count));
  };
  const std::string blocks = fmt::format("{} blocks of {}", t.layers, with_commas(t.block));
  return fmt::format("GPT: {} layers, width {}, {} heads, {} tokens, vocabulary {}\nparameters\n",
                     t.layers, t.width, t.heads, t.sequence, t.vocabulary) +
         row(blocks + " (12 h^2 + 13 h)", t.blocks) + row("tokens (V h)", t.tokens) +
         row("positions (s h)", t.positions) +
         row(t.head == 0 ? "head (that of the tokens)" : "head (V h)", t.head) +
         row("together", t.parameters) + row("as built, with the last norm (2 h)", built) + "\n";
}

void add_states(TermsTable& table, const GptTerms& t, const memory::Peak& peak) {
  const int64_t optimizer =
      kind_bytes(peak, MemoryKind::optimizer_state) + kind_bytes(peak, MemoryKind::master_weight);
  const int64_t weights = kind_bytes(peak, MemoryKind::parameter);
  const int64_t gradients = kind_bytes(peak, MemoryKind::gradient);
  table.row("weights", "2 P", t.published.weights, t.exact.weights, weights);
  table.row("gradients", "2 P", t.published.gradients, t.exact.gradients, gradients);
  table.row("optimizer, fp32 weights", "16 P (twice), 12 P", t.published.optimizer,
            t.exact.optimizer, optimizer);
  table.row("states", "", t.published.states, t.exact.states, weights + gradients + optimizer);
}

void add_activations(TermsTable& table, const GptTerms& t, const memory::Peak& peak) {
  const int64_t kept = kind_bytes(peak, MemoryKind::activation);
  const std::string factor = fmt::format("{:g}", t.factor);
  table.row("activation factor", fmt::format("10 + 24 + 5 a s / h = 34 + {:g}", t.scores_factor),
            factor, factor, "");
  table.row("activations of a sample", fmt::format("s h L x {:g}", t.factor), with_commas(t.sample),
            with_commas(t.sample), with_commas(kept / t.batch));
  table.row("  scores recomputed", "s h L x 34", with_commas(t.sample_selective),
            with_commas(t.sample_selective), "");
  table.row("  blocks recomputed", "s h L x 2", with_commas(t.sample_full),
            with_commas(t.sample_full), "");
  table.row("activations of the batch", fmt::format("x {}", t.batch), t.activations, t.activations,
            kept);
}

void add_totals(TermsTable& table, const GptTerms& t, const memory::Peak& peak) {
  int64_t rest = peak.bytes;
  for (const MemoryKind kind :
       {MemoryKind::parameter, MemoryKind::gradient, MemoryKind::optimizer_state,
        MemoryKind::master_weight, MemoryKind::activation})
    rest -= kind_bytes(peak, kind);
  table.row("fp32 scores (logits)", "b s V x 4", "-", with_commas(t.logits), "");
  table.row("all else at the peak", "inputs, temporaries, workspaces", "-", "-", with_commas(rest));
  table.line();
  table.row("total", "states + activations", t.published.total, t.exact.total, peak.bytes);
  table.row("  with scores", "", with_commas(t.published.with_logits),
            with_commas(t.exact.with_logits), "");
  table.row("  with a fifth to spare", "total x 1.2", with_commas(t.published.with_reserve),
            with_commas(t.exact.with_reserve), "");
}

}  // namespace

GptTerms gpt_terms(const nn::GptOptions& model, int64_t batch) {
  GptTerms t;
  t.layers = model.layers;
  t.width = model.width;
  t.sequence = model.sequence;
  t.heads = model.heads;
  t.vocabulary = model.vocabulary;
  t.batch = batch;
  const int64_t h = t.width;
  t.block = (4 * h * h + 4 * h) + (8 * h * h + 5 * h) + 4 * h;  // attention, MLP, two norms
  t.blocks = t.layers * t.block;
  t.tokens = t.vocabulary * h;
  t.positions = t.sequence * h;
  t.head = model.tied ? 0 : t.tokens;
  t.parameters = t.blocks + t.tokens + t.positions + t.head;
  const int64_t shl = t.sequence * h * t.layers;
  t.scores_factor = 5.0 * static_cast<double>(t.heads * t.sequence) / static_cast<double>(h);
  t.factor = 10 + 24 + t.scores_factor;
  // Whole: 5 a s / h times s h L is 5 a s^2 L.
  t.sample = 34 * shl + 5 * t.heads * t.sequence * t.sequence * t.layers;
  t.sample_selective = 34 * shl;
  t.sample_full = 2 * shl;
  t.activations = t.sample * batch;
  t.logits = batch * t.sequence * t.vocabulary * 4;
  t.published = accounting(t, t.parameters / 1'000'000 * 1'000'000, 16);
  t.exact = accounting(t, t.parameters, 12);
  return t;
}

std::string terms_text(const train::RunOptions& options) {
  if (options.model.name != nn::ModelName::gpt)
    throw ConfigError({.what = "--term-by-term with a model that is no gpt",
                       .why = "the published terms are those of a GPT",
                       .fix = "see every kind and module of any model: braid inspect CONFIG "
                              "--memory --device cuda"});
  const int64_t batch = train::global_batch_of(options.train, 1);
  const int64_t micro = options.train.micro_batch.value_or(batch);
  const GptTerms terms = gpt_terms(options.model.gpt, micro == 0 ? batch : std::min(micro, batch));
  nn::Build on_meta;
  on_meta.device = c10::kMeta;
  const auto built = nn::make_model(options.model, on_meta);
  const train::Measured dry =
      train::measure(options, {.device = c10::Device(c10::kCUDA, 0), .dry = true});
  // At the end of the forward passes all of the activations are there.
  const memory::Peak& peak = dry.second_step.peak;
  TermsTable table;
  table.row("bytes", "P parameters, b samples at a time", "20 B, millions", "16 B", "dry run");
  table.line();
  add_states(table, terms, peak);
  add_activations(table, terms, peak);
  add_totals(table, terms, peak);
  return parameters_text(terms, built->parameters()) + table.text +
         fmt::format("the dry run uses this config: {}, micro-batch {}; its peak is in {}{}\n",
                     options.train.precision, terms.batch, peak.op,
                     peak.module.empty() ? "" : " of " + peak.module);
}

}  // namespace braid::plan
