// SPDX-License-Identifier: BSD-3-Clause
// braid parity CONFIG: applies the bare model and loss to given arrays, so that a port from Python
// can be proven right.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "braid/checkpoint/safetensors.h"
#include "braid/core/fs.h"
#include "braid/data/npy.h"
#include "braid/nn/loss.h"
#include "braid/train/session.h"
#include "cli/command.h"

namespace braid::cli {
namespace {

struct ParityArguments {
  ConfigArguments config;
  std::string weights, input, target, out;
  bool json = false;
};

std::string weights_help(const ParityArguments& arguments) {
  return fmt::format(
      "name the tensors as the layers of braid inspect {}, with .weight and .bias, and take the "
      "sizes of the model that they come from",
      arguments.config.spec);
}

Exit parity_command(const ParityArguments& arguments) {
  const train::RunOptions options = arguments.config.load();
  const std::unique_ptr<nn::Model> model = train::build_model(options);
  State weights;
  weights.tensors = checkpoint::read_safetensors(arguments.weights).tensors;
  train::copy_weights(*model, weights, {.name = arguments.weights, .fix = weights_help(arguments)});

  const c10::Device device = train::device_of(options.train);
  const at::Tensor input = data::read_npy(arguments.input).to(device);
  const at::Tensor target = data::read_npy(arguments.target).to(device);
  const at::Tensor output = model->forward(input, {.training = false});
  const at::Tensor loss = nn::loss(options.train.loss, output, target);
  loss.backward();

  checkpoint::Tensors gradients;
  for (const Param& param : model->params())
    if (param.tensor.grad().defined()) gradients[param.name] = param.tensor.grad().to(at::kCPU);
  make_dirs(arguments.out);
  const std::filesystem::path out = arguments.out;
  data::write_npy(out / "output.npy", output.detach().to(at::kCPU));
  checkpoint::write_safetensors(out / "gradients.safetensors", gradients);
  const nlohmann::json result = {{"loss", loss.item<double>()},
                                 {"parameters", model->parameters()}};
  write_atomic(out / "result.json", result.dump() + "\n");
  if (arguments.json)
    fmt::print("{}\n", result.dump());
  else
    fmt::print("loss {:.10g}\nwrote output.npy, gradients.safetensors and result.json to {}\n",
               loss.item<double>(), arguments.out);
  return Exit::ok;
}

}  // namespace

void add_parity(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ParityArguments>();
  CLI::App* command = app.add_subcommand(
      "parity", "compute output, loss and gradients for given weights and arrays");
  add_config(*command, arguments->config);
  command
      ->add_option("--weights", arguments->weights,
                   "safetensors file with one tensor for each parameter")
      ->required();
  command->add_option("--input", arguments->input, "input, .npy; not normalised")->required();
  command->add_option("--target", arguments->target, "target, .npy; not shifted")->required();
  command
      ->add_option("--out", arguments->out,
                   "folder for output.npy, gradients.safetensors and result.json")
      ->required();
  add_json(*command, arguments->json);
  command->callback(
      [&action, arguments] { action = [arguments] { return parity_command(*arguments); }; });
}

}  // namespace braid::cli
