// SPDX-License-Identifier: BSD-3-Clause
// Dry steps against the CUDA allocator: for each case the predicted peak, what the allocator was
// asked for at its peak and at the end of each phase, and the scratch of every kernel where the two
// differ. Each model also with parts computed again and with parts on the host.
//
//   build/bin/bench_cuda_memory [case] [--dry]   one JSON object a case on stdout
//
// `case` is a part of a name: "gpt bf16", "recompute blocks", "offload". Needs a GPU; --dry: the
// predicted side alone, without one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "braid/core/accelerator.h"
#include "braid/memory/instruments.h"
#include "braid/train/measure.h"

namespace {

using namespace braid;

const c10::Device gpu(c10::kCUDA, 0);

struct Case {
  std::string name;
  train::RunOptions run;
};

Case a_case(std::string name, nn::ModelName model, const std::string& precision, int64_t batch) {
  train::RunOptions run;
  run.model.name = model;
  run.model.mlp = {.inputs = 1024, .hidden = {4096, 4096, 1024}, .outputs = 16, .dropout = 0.1};
  run.model.vit = {.image = {180, 360}, .patch = 4};
  run.model.gpt = {.vocabulary = 50304};
  run.model.llama = {.vocabulary = 32000,
                     .sequence = 1024,
                     .layers = 4,
                     .heads = 16,
                     .kv_heads = 4,
                     .width = 1024,
                     .hidden = 2816};
  run.data.sequence = 1024;
  const bool scores =
      model == nn::ModelName::mlp || model == nn::ModelName::gpt || model == nn::ModelName::llama;
  run.train.loss = scores                        ? nn::Loss::cross_entropy
                   : model == nn::ModelName::vit ? nn::Loss::relative_l2
                                                 : nn::Loss::l1;
  run.train.precision = precision;
  run.train.global_batch = batch;
  run.train.clip = 1;
  return {std::move(name), std::move(run)};
}

std::vector<Case> all_cases() {
  using nn::ModelName;
  std::vector<Case> cases = {a_case("mlp fp32", ModelName::mlp, "fp32", 4096),
                             a_case("mlp bf16", ModelName::mlp, "bf16", 4096),
                             a_case("vit fp32", ModelName::vit, "fp32", 4),
                             a_case("vit tf32", ModelName::vit, "tf32", 4),
                             a_case("vit bf16", ModelName::vit, "bf16", 8),
                             a_case("vit fp16", ModelName::vit, "fp16", 8),
                             a_case("gpt fp32", ModelName::gpt, "fp32", 4),
                             a_case("gpt bf16", ModelName::gpt, "bf16", 8),
                             a_case("gpt bf16_params", ModelName::gpt, "bf16_params", 8),
                             a_case("gpt bf16 dropout", ModelName::gpt, "bf16", 4),
                             a_case("gpt bf16 small vocabulary", ModelName::gpt, "bf16", 8),
                             a_case("llama fp32", ModelName::llama, "fp32", 2),
                             a_case("llama bf16", ModelName::llama, "bf16", 4),
                             a_case("llama bf16_params", ModelName::llama, "bf16_params", 4),
                             a_case("swinir fp32", ModelName::swinir, "fp32", 4),
                             a_case("swinir bf16", ModelName::swinir, "bf16", 4)};
  for (Case& c : cases) {
    if (c.name == "gpt bf16 dropout") c.run.model.gpt.dropout = 0.1;
    if (c.name == "gpt bf16 small vocabulary") c.run.model.gpt.vocabulary = 256;
  }
  return cases;
}

// The choices of the `memory` section that each model is measured with.
struct Choice {
  std::string name;
  memory::MemoryOptions memory;
};

std::vector<Choice> all_choices() {
  using memory::Again;
  using Words = std::vector<std::string>;
  const auto choice = [](std::string name, Again again, Words offload) {
    memory::MemoryOptions options;
    options.recompute = again;
    options.offload = std::move(offload);
    return Choice{std::move(name), std::move(options)};
  };
  return {choice("recompute blocks", Again::blocks, {}),
          choice("recompute attention", Again::attention, {}),
          choice("recompute matmuls", Again::matmuls, {}),
          choice("offload optimizer", Again::none, {"optimizer"}),
          choice("offload activations", Again::none, {"activations"}),
          choice("offload parameters", Again::none, {"parameters"}),
          choice("recompute blocks offload optimizer activations", Again::blocks,
                 {"optimizer", "activations"})};
}

bool has_choices(const std::string& name) {
  const std::string precision = name.substr(name.find(' ') + 1);
  return precision == "fp32" || precision == "bf16" || name == "gpt bf16_params" ||
         name == "gpt bf16 dropout";
}

// All of the above, and each model in fp32 and bf16 with each choice.
std::vector<Case> cases_with_choices() {
  const std::vector<Case> plain = all_cases();
  std::vector<Case> cases = plain;
  for (const Case& each : plain) {
    if (!has_choices(each.name)) continue;
    for (const Choice& choice : all_choices()) {
      Case& with = cases.emplace_back(each);
      with.name += " " + choice.name;
      with.run.memory = choice.memory;
      if (choice.memory.offloads("parameters")) with.run.train.zero = 3;
    }
  }
  return cases;
}

std::string shapes_text(const memory::Operator& op) {
  std::string text;
  for (const memory::TensorShape& shape : op.inputs)
    if (!shape.sizes.empty())
      text += fmt::format("[{}]{} ", fmt::join(shape.sizes, ","), dtype_name(shape.dtype));
  return text;
}

// {operator with shapes: scratch} of a step.
std::map<std::string, int64_t> scratch_of(const memory::OperatorLog& log) {
  std::map<std::string, int64_t> found;
  for (const memory::Operator& op : log.operators())
    if (op.scratch > 0) found[op.name + " " + shapes_text(op)] = op.scratch;
  return found;
}

// Over what is alive at the beginning, so that workspaces of earlier cases do not count.
void print_phase(const char* name, const train::Phase& dry, const train::Phase& real) {
  const int64_t predicted = dry.peak.bytes - dry.before, left = dry.left - dry.before;
  fmt::print(
      R"("{}": {{"dry": {}, "requested": {}, "difference": {}, "left_dry": {}, "left_requested": {}, "left_difference": {}, "left_ledger": {}, "host_dry": {}, "host_real": {}, "dry_at": "{} {}", "real_at": "{} {}"}}, )",
      name, predicted, real.requested, real.requested - predicted, left, real.requested_left,
      real.requested_left - left, real.left - real.before, dry.host, real.host, dry.peak.op,
      dry.peak.module, real.peak.op, real.peak.module);
}

// `witnessed`: the same on the GPU beside it.
void run_case(const Case& c, bool witnessed) {
  const train::Measured dry = train::measure(c.run, {.device = gpu, .dry = true});
  const train::Measured real = train::measure(c.run, {.device = gpu, .dry = !witnessed});
  fmt::print("{{\"case\": \"{}\", ", c.name);
  print_phase("backward", dry.backward, real.backward);
  print_phase("first_step", dry.first_step, real.first_step);
  print_phase("step", dry.second_step, real.second_step);
  print_phase("evaluation", dry.evaluation, real.evaluation);
  fmt::print("\"workspaces_at_real_peak\": [");
  const char* comma = "";
  for (const memory::Held& held : real.second_step.peak.alive) {
    if (held.kind != MemoryKind::workspace) continue;
    fmt::print("{}\"{} {} {}\"", std::exchange(comma, ", "), held.bytes, held.op, held.module);
  }
  fmt::print("], \"scratch\": [");
  const auto of_dry = scratch_of(dry.log), of_real = scratch_of(real.log);
  std::map<std::string, std::pair<int64_t, int64_t>> both;
  for (const auto& [op, bytes] : of_dry) both[op].first = bytes;
  for (const auto& [op, bytes] : of_real) both[op].second = bytes;
  bool first = true;
  for (const auto& [op, bytes] : both) {
    if (bytes.first == bytes.second) continue;
    fmt::print("{}\n  \"{}: dry {}, real {}\"", first ? "" : ",", op, bytes.first, bytes.second);
    first = false;
  }
  fmt::print("]}}\n");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  const bool witnessed = std::find(words.begin(), words.end(), "--dry") == words.end();
  if (witnessed && accelerator() == nullptr) {
    fmt::print(stderr, "bench_cuda_memory: {}\n", accelerator_status().reason);
    return 1;
  }
  const std::string wanted = words.empty() || words[0] == "--dry" ? "" : words[0];
  // cuBLAS keeps the workspace that it takes at its first use, on this thread and on autograd's.
  if (witnessed) train::measure(all_cases().front().run, {.device = gpu, .dry = false});
  int failed = 0;
  for (const Case& c : cases_with_choices()) {
    if (c.name.find(wanted) == std::string::npos) continue;
    try {
      run_case(c, witnessed);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}: {}\n", c.name, error.what());
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}
