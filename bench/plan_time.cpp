// SPDX-License-Identifier: BSD-3-Clause
// Predicted step time beside the measured one, for cases over four models and three batch sizes
// each. Needs a GPU and a cluster file with its curves (braid bench kernels -o FILE).
//
//   build/bin/bench_plan_time FILE [case] [--dry] [--steps N]   one JSON object a case on stdout
//   build/bin/bench_plan_time FILE --operators CASE             seconds by operator, both sides
//
// `case` is a part of a name: "gpt", "vit bf16 8". --dry: the predicted side alone, without a GPU.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "braid/core/accelerator.h"
#include "braid/core/cpu.h"
#include "braid/core/error.h"
#include "braid/plan/cluster.h"
#include "braid/plan/cost.h"
#include "braid/plan/layout.h"
#include "braid/plan/simulate.h"
#include "braid/train/measure.h"
#include "braid/train/profiler.h"

namespace {

using namespace braid;

struct Case {
  std::string name;
  train::RunOptions run;
};

train::RunOptions model_run(const std::string& model) {
  train::RunOptions run;
  run.train.clip = 1;
  run.train.loss = nn::Loss::cross_entropy;
  run.data.sequence = 1024;
  if (model.starts_with("vit")) {
    run.model.name = nn::ModelName::vit;
    run.model.vit = {.image = {360, 720},
                     .patch = 8,
                     .channels_in = 20,
                     .channels_out = 20,
                     .width = model == "vit" ? 384 : 1536,
                     .depth = 12,
                     .heads = 8};
    run.train.loss = nn::Loss::relative_l2;
  } else if (model == "swinir") {
    run.model.name = nn::ModelName::swinir;
    run.model.swinir.image = {64, 64};
    run.model.swinir.drop_path = 0.1;
    run.train.loss = nn::Loss::l1;
  } else if (model == "gpt") {
    run.model.name = nn::ModelName::gpt;
    run.model.gpt = {.vocabulary = 50257};
  } else {
    run.model.name = nn::ModelName::llama;
    run.model.llama = {.vocabulary = 32000,
                       .sequence = 8192,
                       .layers = 8,
                       .heads = 32,
                       .kv_heads = 8,
                       .width = 4096,
                       .hidden = 14336};
    run.data.sequence = 8192;
  }
  return run;
}

std::vector<Case> all_cases() {
  struct Row {
    const char *model, *precision;
    std::vector<int64_t> batches;
  };
  const std::vector<Row> rows = {{"vit", "bf16", {2, 4, 16}},    {"vit", "fp32", {2}},
                                 {"vit", "tf32", {4}},           {"vit_wide", "fp16", {1, 2, 8}},
                                 {"swinir", "fp32", {2, 4, 16}}, {"swinir", "bf16", {8}},
                                 {"gpt", "bf16", {2, 8, 32}},    {"gpt", "fp32", {4}},
                                 {"llama", "bf16", {1, 2, 4}}};
  std::vector<Case> cases;
  for (const Row& row : rows)
    for (const int64_t batch : row.batches) {
      Case& c = cases.emplace_back();
      c.name = fmt::format("{} {} {}", row.model, row.precision, batch);
      c.run = model_run(row.model);
      c.run.train.precision = row.precision;
      c.run.train.global_batch = batch;
    }
  return cases;
}

struct Predicted {
  plan::LayoutRun layout;
  plan::StepTime time;
};

Predicted predict(const Case& c, const plan::Cluster& cluster) {
  Predicted predicted;
  predicted.layout = plan::dry_layout(c.run, 1, {.evaluation = false});
  predicted.time = plan::simulate(predicted.layout, plan::cost_model(cluster, c.run, 1));
  return predicted;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Under steady load, as in the steps of a run: after two seconds of them, when power is short.
double measured_seconds(const Case& c, int steps, double expected) {
  constexpr double warm = 2;
  const int before = std::max(3, static_cast<int>(warm / expected));
  std::vector<double> times = train::time_steps(c.run, c10::Device(c10::kCUDA, 0), before + steps);
  times.erase(times.begin(), times.begin() + before);
  return median(std::move(times));
}

nlohmann::json parts_json(const plan::TimeParts& parts) {
  return {{"forward", parts.forward},     {"backward", parts.backward},
          {"recompute", parts.recompute}, {"optimizer", parts.optimizer},
          {"copies", parts.copies},       {"launch", parts.launch}};
}

void say(const nlohmann::json& line) {
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

// The error in percent; nothing where the case could not be run.
std::optional<double> run_case(const Case& c, const plan::Cluster& cluster, int steps, bool dry) {
  nlohmann::json line = {{"case", c.name}};
  try {
    const Predicted predicted = predict(c, cluster);
    line["predicted"] = predicted.time.seconds;
    line["parts"] = parts_json(predicted.time.parts);
    line["operators"] = predicted.layout.ranks.front().trace.operators.size();
    if (!dry) {
      const double measured = measured_seconds(c, steps, predicted.time.seconds);
      line["measured"] = measured;
      line["error_percent"] = 100 * (predicted.time.seconds / measured - 1);
    }
  } catch (const std::exception& error) {
    line["failed"] = std::string(error.what()).substr(0, 300);
  }
  say(line);
  if (!line.contains("error_percent")) return std::nullopt;
  return line["error_percent"].get<double>();
}

// The trace holds the making of the model and a first step, too: `steps` are many enough for them
// not to matter.
std::map<std::string, double> profiled(const Case& c, int steps) {
  train::ProfileOptions options;
  options.on = true;
  options.wait = options.warm_up = 0;
  options.steps = 1;
  options.dir = "runs/bench_plan_time";
  train::ProfilerPlace place;
  place.run_dir = "runs/bench_plan_time";
  place.device = c10::Device(c10::kCUDA, 0);
  train::Profiler profiler(options, std::move(place));
  profiler.begin_step(0);
  train::time_steps(c.run, c10::Device(c10::kCUDA, 0), steps);
  profiler.end_step();
  profiler.finish();
  std::map<std::string, double> seconds;
  const nlohmann::json summary = nlohmann::json::parse(profiler.summary());
  for (const nlohmann::json& row : summary["operators"])
    seconds[row["name"].get<std::string>()] += row["seconds"].get<double>() / (steps + 1);
  return seconds;
}

void print_operators(const Case& c, const plan::Cluster& cluster, bool dry) {
  const Predicted predicted = predict(c, cluster);
  const std::map<std::string, double> measured =
      dry ? std::map<std::string, double>{} : profiled(c, 9);
  std::map<std::string, std::pair<double, double>> both;
  for (const auto& [name, seconds] : predicted.time.by_operator) both[name].first = seconds;
  for (const auto& [name, seconds] : measured) both[name].second = seconds;
  std::vector<std::pair<std::string, std::pair<double, double>>> rows(both.begin(), both.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return std::max(a.second.first, a.second.second) > std::max(b.second.first, b.second.second);
  });
  fmt::print("{}: predicted {:.2f} ms\n{:<56} {:>12} {:>12} {:>9}\n", c.name,
             1e3 * predicted.time.seconds, "operator", "predicted ms", "measured ms", "ratio");
  for (const auto& [name, seconds] : rows)
    fmt::print("{:<56} {:>12.3f} {:>12.3f} {:>9.2f}\n", name, 1e3 * seconds.first,
               1e3 * seconds.second, seconds.second > 0 ? seconds.first / seconds.second : 0);
  std::fflush(stdout);
}

struct Arguments {
  std::string cluster, which, operators;
  bool dry = false;
  int steps = 10;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--dry")
      arguments.dry = true;
    else if (word == "--steps" && i + 1 < argc)
      arguments.steps = std::max(1, std::stoi(argv[++i]));
    else if (word == "--operators" && i + 1 < argc)
      arguments.operators = argv[++i];
    else if (arguments.cluster.empty())
      arguments.cluster = word;
    else
      arguments.which = word;
  }
  return arguments;
}

int run_all(const Arguments& arguments) {
  const plan::Cluster cluster = plan::load_cluster(arguments.cluster);
  double sum = 0, worst = 0;
  int count = 0;
  for (const Case& c : all_cases()) {
    if (!arguments.operators.empty()) {
      if (c.name == arguments.operators) print_operators(c, cluster, arguments.dry);
      continue;
    }
    if (c.name.find(arguments.which) == std::string::npos) continue;
    const auto error = run_case(c, cluster, arguments.steps, arguments.dry);
    if (!error) continue;
    sum += std::abs(*error);
    worst = std::max(worst, std::abs(*error));
    ++count;
  }
  if (count > 0)
    say({{"cases", count}, {"mean_error_percent", sum / count}, {"worst_error_percent", worst}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  avoid_broken_amx();
  const Arguments arguments = parse(argc, argv);
  if (arguments.cluster.empty()) {
    fmt::print(stderr, "bench_plan_time CLUSTER [case] [--dry] [--steps N] [--operators CASE]\n");
    return 2;
  }
  if (!arguments.dry && accelerator() == nullptr) {
    fmt::print(stderr, "{}\n", accelerator_status().reason);
    return 2;
  }
  try {
    return run_all(arguments);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", explain(error.complaint()));
    return 2;
  }
}
