// SPDX-License-Identifier: BSD-3-Clause
// What a plan says of a GPU's memory against what its caching allocator says: requested and
// reserved bytes at the peaks of each part of a run. A process for each case, so that nothing is
// left of the one before.
//
//   build/bin/bench_plan_memory [--out FILE] [--dry] [--fixed] [case...]
//
// One JSON object a case, on stdout and in FILE, as soon as it is known. `case` is a part of a
// name: "gpt bf16". Needs a GPU; --dry: the predicted side alone, without one; --fixed: segments of
// the allocator do not grow.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "braid/core/accelerator.h"
#include "braid/plan/layout.h"
#include "braid/train/life.h"

namespace {

using namespace braid;

const c10::Device gpu(c10::kCUDA, 0);
constexpr int64_t hopper_workspace = 32 << 20;  // of cuBLAS, a thread that multiplies

constexpr const char* fixed_segments = "PYTORCH_ALLOC_CONF=expandable_segments:False ";

struct Case {
  std::string name;
  train::RunOptions run;
};

Case a_case(const std::string& model, const std::string& rest, int64_t batch) {
  using nn::ModelName;
  train::RunOptions run;
  run.model.name = model.starts_with("vit")   ? ModelName::vit
                   : model == "swinir"        ? ModelName::swinir
                   : model.starts_with("gpt") ? ModelName::gpt
                                              : ModelName::llama;
  run.model.vit = {.image = {180, 360}, .patch = 4};
  if (model == "vit1536") run.model.vit = {.image = {360, 720}, .patch = 8, .width = 1536};
  run.model.gpt = {.vocabulary = 50304};
  run.model.llama = {.vocabulary = 32000,
                     .sequence = 1024,
                     .layers = 4,
                     .heads = 16,
                     .kv_heads = 4,
                     .width = 1024,
                     .hidden = 2816};
  if (model == "moe") {
    run.model.llama.moe.experts = 8;
    run.model.llama.moe.capacity = 1.25;
  }
  run.data.sequence = 1024;
  const bool scores = run.model.name == ModelName::gpt || run.model.name == ModelName::llama;
  run.train.loss = scores                             ? nn::Loss::cross_entropy
                   : run.model.name == ModelName::vit ? nn::Loss::relative_l2
                                                      : nn::Loss::l1;
  run.train.precision = rest.substr(0, rest.find(' '));
  if (rest.find("blocks") != std::string::npos) run.memory.recompute = memory::Again::blocks;
  if (rest.find("attention") != std::string::npos) run.memory.recompute = memory::Again::attention;
  if (rest.find("micro") != std::string::npos) run.train.micro_batch = batch / 2;
  run.train.global_batch = batch;
  run.train.clip = 1;
  return {model + " " + rest, std::move(run)};
}

std::vector<Case> all_cases() {
  return {a_case("vit384", "fp32", 4),
          a_case("vit384", "bf16", 8),
          a_case("vit384", "bf16 recompute blocks", 8),
          a_case("vit1536", "bf16", 4),
          a_case("vit1536", "bf16 recompute blocks", 4),
          a_case("swinir", "fp32", 4),
          a_case("swinir", "bf16", 4),
          a_case("swinir", "bf16 recompute blocks", 4),
          a_case("gpt2", "fp32", 4),
          a_case("gpt2", "bf16", 8),
          a_case("gpt2", "bf16 micro", 16),
          a_case("gpt2", "bf16 recompute blocks", 8),
          a_case("llama", "fp32", 2),
          a_case("llama", "bf16", 4),
          a_case("llama", "bf16 recompute attention", 4),
          a_case("moe", "fp32", 2),
          a_case("moe", "bf16", 4)};
}

struct Bytes2 {
  int64_t requested = 0, reserved = 0;
};
using Moments = std::map<std::string, Bytes2>;

Moments predicted(const train::RunOptions& run, bool fixed) {
  const plan::LayoutRun layout = plan::dry_layout(
      run, 1, {.device = gpu, .gemm_workspace = hopper_workspace, .expandable = !fixed});
  const plan::RankMemory& memory = layout.ranks.front().memory;
  const auto both = [](const plan::MomentBytes& moment) {
    return Bytes2{moment.allocated, moment.reserved};
  };
  return {{"first step", both(memory.first_step)},
          {"step", both(memory.steady_step)},
          {"checkpoint", both(memory.checkpoint)},
          {"evaluation", both(memory.evaluation)}};
}

Moments measured(const train::RunOptions& run) {
  Moments moments;
  train::live(run, {.device = gpu, .dry = false},
              {.trace = false,
               .after = [&](std::string_view part, const memory::Ledger&, const train::Life&) {
                 if (part == "build") return;  // no part of a plan's moments
                 moments[std::string(part)] = {accelerator()->peak_requested(0),
                                               accelerator()->peak_reserved(0)};
               }});
  return moments;
}

// `real` null: nothing was measured, and nothing is said of it.
std::string compared(int64_t plan, const int64_t* real) {
  if (real == nullptr) return fmt::format(R"({{"plan": {}}})", plan);
  const double percent =
      *real == 0 ? 0 : 100 * static_cast<double>(plan - *real) / static_cast<double>(*real);
  return fmt::format(R"({{"plan": {}, "real": {}, "difference": {}, "percent": {:.3f}}})", plan,
                     *real, plan - *real, percent);
}

std::string both_compared(const Bytes2& plan, const Bytes2* real) {
  return fmt::format(R"("requested": {}, "reserved": {})",
                     compared(plan.requested, real == nullptr ? nullptr : &real->requested),
                     compared(plan.reserved, real == nullptr ? nullptr : &real->reserved));
}

Bytes2 most_of(const Moments& moments) {
  Bytes2 most;
  for (const auto& [name, bytes] : moments)
    most = {std::max(most.requested, bytes.requested), std::max(most.reserved, bytes.reserved)};
  return most;
}

struct Words {
  std::string out, one;
  bool dry = false, fixed = false;
  std::vector<std::string> cases;
};

// Without `dry`: the same on the GPU beside it.
std::string line_of(const Case& c, const Words& words) {
  const Moments plan = predicted(c.run, words.fixed);
  Moments real;
  if (!words.dry) real = measured(c.run);
  std::string text = fmt::format("{{\"case\": \"{}\", \"measured\": {}", c.name, !words.dry);
  for (const auto& [moment, bytes] : plan)
    text += fmt::format(R"(, "{}": {{{}}})", moment,
                        both_compared(bytes, words.dry ? nullptr : &real.at(moment)));
  const Bytes2 most = most_of(real);
  return text + fmt::format(", {}}}", both_compared(most_of(plan), words.dry ? nullptr : &most));
}

// The output of a command.
std::string output_of(const std::string& command, bool& failed) {
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 4096> part = {};
  while (const size_t count = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), count);
  failed = ::pclose(pipe) != 0;
  return text;
}

Words words_of(int count, char** arguments) {
  Words words;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word == "--dry")
      words.dry = true;
    else if (word == "--fixed")
      words.fixed = true;
    else if (word == "--out" && i + 1 < count)
      words.out = arguments[++i];
    else if (word == "--one" && i + 1 < count)
      words.one = arguments[++i];
    else
      words.cases.push_back(word);
  }
  return words;
}

int run_one(const Words& words) {
  if (!words.dry && accelerator() == nullptr) {
    fmt::print(stderr, "bench_plan_memory: {}\n", accelerator_status().reason);
    return 1;
  }
  for (const Case& c : all_cases())
    if (c.name == words.one) fmt::print("{}\n", line_of(c, words));
  return 0;
}

int run_all(const char* self, const Words& words) {
  int failures = 0;
  for (const Case& c : all_cases()) {
    const auto names = [&](const std::string& part) {
      return c.name.find(part) != std::string::npos;
    };
    if (!words.cases.empty() && std::none_of(words.cases.begin(), words.cases.end(), names))
      continue;
    bool failed = false;
    const std::string line =
        output_of(fmt::format("{}'{}' --one '{}'{}{}", words.fixed ? fixed_segments : "", self,
                              c.name, words.dry ? " --dry" : "", words.fixed ? " --fixed" : ""),
                  failed);
    failures += failed ? 1 : 0;
    fmt::print("{}", line);
    std::fflush(stdout);
    if (words.out.empty()) continue;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(words.out.c_str(), "a"),
                                                               &std::fclose);
    if (file != nullptr) fmt::print(file.get(), "{}", line);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const Words words = words_of(count, arguments);
    return words.one.empty() ? run_all(arguments[0], words) : run_one(words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_plan_memory: {}\n", error.what());
    return 1;
  }
}
