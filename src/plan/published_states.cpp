// SPDX-License-Identifier: BSD-3-Clause
// What is counted, not timed: parameters, and the states that ZeRO shards.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "braid/memory/instruments.h"
#include "braid/plan/published.h"
#include "braid/train/life.h"

namespace braid::plan {
namespace {

constexpr std::array<int64_t, 6> zero_ranks = {1, 4, 16, 64, 256, 1024};

struct ZeroLine {
  double billions;
  int64_t stage;
  std::array<const char*, 6> printed;  // by the number of ranks
};

constexpr std::array<ZeroLine, 9> zero_lines = {{
    {7.5, 1, {"120", "52.5", "35.6", "31.4", "30.4", "30.1"}},
    {7.5, 2, {"120", "41.3", "21.6", "16.6", "15.4", "15.1"}},
    {7.5, 3, {"120", "30", "7.5", "1.88", "0.47", "0.12"}},
    {128, 1, {"2048", "896", "608", "536", "518", "513"}},
    {128, 2, {"2048", "704", "368", "284", "263", "257"}},
    {128, 3, {"2048", "512", "128", "32", "8", "2"}},
    {1000, 1, {"16000", "7000", "4750", "4187", "4046", "4011"}},
    {1000, 2, {"16000", "5500", "2875", "2218", "2054", "2013"}},
    {1000, 3, {"16000", "4000", "1000", "250", "62.5", "15.6"}},
}};

// 16-bit parameters and gradients, fp32 master weights and moments; sizes that 1024 ranks share
// evenly, and few tokens.
train::RunOptions zero_run(int64_t stage) {
  train::RunOptions run;
  run.model.name = nn::ModelName::gpt;
  run.model.gpt = {.vocabulary = 1024, .sequence = 1024, .layers = 2, .heads = 8, .width = 1024};
  run.data.input_shape = run.data.target_shape = {8};
  run.data.sequence = 8;
  run.data.classes = 1024;
  run.train.loss = nn::Loss::cross_entropy;
  run.train.precision = "bf16_params";
  run.train.master = "fp32";
  run.train.local_batch = 1;
  run.train.zero = stage;
  run.optimizer.rule.name = optim::Algorithm::adamw;
  return run;
}

int64_t states_of(const memory::KindBytes& kinds) {
  int64_t sum = 0;
  for (const MemoryKind kind : {MemoryKind::parameter, MemoryKind::gradient,
                                MemoryKind::optimizer_state, MemoryKind::master_weight})
    sum += kinds[static_cast<size_t>(kind)];
  return sum;
}

// 4187.5 to no digit: 4187 and 4188.
std::string cut(double value, size_t digits, bool round) {
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double whole = round ? std::round(value * scale) : std::floor(value * scale * (1 + 1e-9));
  return fmt::format("{:.{}f}", whole / scale, digits);
}

}  // namespace

bool reads(double value, const std::string& printed) {
  const size_t dot = printed.find('.');
  const size_t digits = dot == std::string::npos ? 0 : printed.size() - dot - 1;
  return cut(value, digits, false) == printed || cut(value, digits, true) == printed;
}

int64_t count_parameters(const train::RunOptions& options) {
  const memory::Instruments on({.dry = true});
  const auto model = nn::make_model(
      options.model, {.precision = train::policy_of(options.train), .dry_params = true});
  int64_t count = 0;
  for (const Param& param : model->params()) count += param.tensor.numel();
  return count;
}

double state_bytes(int64_t zero, int64_t ranks) {
  const train::RunOptions run = zero_run(ranks == 1 ? 0 : zero);
  const c10::Device gpu(c10::kCUDA, 0);
  int64_t bytes = 0;
  const auto after = [&](std::string_view part, const memory::Ledger& ledger, const train::Life&) {
    if (part != "step") return;
    const std::vector<memory::Moment> moments = ledger.timeline(memory::place_of(gpu));
    bytes = states_of(moments.back().by_kind);
    if (ranks > 1) return;
    for (const memory::Moment& moment : moments)  // without buckets gradients go with the update
      bytes = std::max(bytes, states_of(moment.by_kind));
  };
  train::live(run, {.device = gpu, .world = ranks},
              {.trace = false, .evaluation = false, .after = after});
  return static_cast<double>(bytes) / static_cast<double>(count_parameters(run));
}

const std::vector<PublishedStates>& published_states() {
  static const std::vector<PublishedStates> all = [] {
    std::vector<PublishedStates> rows;
    for (const ZeroLine& line : zero_lines)
      for (size_t i = 0; i < zero_ranks.size(); ++i)
        rows.push_back({line.billions * 1e9, line.stage, zero_ranks[i], line.printed[i]});
    return rows;
  }();
  return all;
}

}  // namespace braid::plan
