// SPDX-License-Identifier: BSD-3-Clause
// braid inspect CONFIG: layers, shapes, parameters, FLOPs, and with --memory what a step takes,
// without allocating a weight.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "braid/core/units.h"
#include "cli/command.h"
#include "cli/inspect_memory.h"

namespace braid::cli {
namespace {

struct InspectArguments {
  ConfigArguments config;
  bool json = false, memory = false;
  std::string device = "cpu";
};

nlohmann::json as_json(const nn::Model& model) {
  nlohmann::json layers = nlohmann::json::array();
  for (const nn::LayerRow& row : model.layers())
    layers.push_back({{"name", row.name},
                      {"kind", row.kind},
                      {"output", row.output},
                      {"parameters", row.parameters},
                      {"flops", row.flops}});
  return {{"model", model.name()},
          {"parameters", model.parameters()},
          {"flops_forward", model.flops_forward()},
          {"layers", std::move(layers)}};
}

void print_table(const nn::Model& model) {
  fmt::print("{:<44} {:<30} {:<20} {:>16} {:>14}\n{:-<128}\n", "layer", "kind",
             "output (one sample)", "parameters", "forward FLOP", "");
  for (const nn::LayerRow& row : model.layers())
    fmt::print("{:<44} {:<30} {:<20} {:>16} {:>14}\n", row.name, row.kind,
               fmt::format("{}", fmt::join(row.output, " x ")), with_commas(row.parameters),
               row.flops > 0 ? with_prefix(row.flops, "") : "-");
  fmt::print("{:-<128}\n{}: {} parameters, forward {} a sample, training step {} a sample\n", "",
             model.name(), with_commas(model.parameters()),
             with_prefix(model.flops_forward(), "FLOP"),
             with_prefix(3 * model.flops_forward(), "FLOP"));
}

Exit inspect_command(const InspectArguments& arguments) {
  const train::RunOptions options = arguments.config.load();
  const auto model = nn::make_model(
      options.model,
      {.seed = 0, .precision = train::policy_of(options.train), .device = c10::kMeta});
  nlohmann::json json = as_json(*model);
  if (!arguments.json) print_table(*model);
  if (arguments.memory) {
    const auto type = arguments.device == "cuda" ? c10::kCUDA : c10::kCPU;
    const MemoryView view = memory_view(options, c10::Device(type, type == c10::kCUDA ? 0 : -1));
    json["memory"] = memory_json(view);
    if (!arguments.json) print_memory(view);
  }
  if (arguments.json) fmt::print("{}\n", json.dump());
  return Exit::ok;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand(
      "inspect",
      "list layers with shapes, parameters and FLOPs; with --memory the memory of a step");
  add_config(*command, arguments->config);
  command->add_flag(
      "--memory", arguments->memory,
      "run a dry step: peak memory by kind and module, and what smaller settings save");
  command
      ->add_option("--device", arguments->device,
                   "device to count for, cpu or cuda; it need not exist (default: cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  add_json(*command, arguments->json);
  command->callback(
      [&action, arguments] { action = [arguments] { return inspect_command(*arguments); }; });
}

}  // namespace braid::cli
