// SPDX-License-Identifier: BSD-3-Clause
#include "train/step_parts.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <cstdlib>

#include "braid/core/accelerator.h"
#include "braid/core/dry.h"
#include "braid/core/error.h"
#include "braid/core/observe.h"
#include "braid/parallel/replicate.h"
#include "braid/parallel/zero.h"
#include "train/own_model.h"

namespace braid::train {
namespace {

bool host_updates(const RunOptions& options) {
  const memory::MemoryOptions& memory = options.memory;
  return memory.offloads("optimizer") && (!memory.offloads("parameters") || memory.delay > 0);
}

void check_fp8_device(c10::Device device) {
  const int number = device.has_index() ? device.index() : 0;
  const int capability = accelerator()->generation(number);
  if (capability >= 89) return;
  throw ConfigError({.what = fmt::format("train.fp8 on {}, which is sm_{}",
                                         accelerator()->name(number), capability),
                     .why = "tensor cores multiply 8-bit floats from sm_89 on",
                     .fix = "set train.fp8=off"});
}

// For the process. Torch then takes kernels that add in one order, or says that it has none.
void repeat_bits() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // NOLINT(concurrency-mt-unsafe)
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

// Before anything asks for them.
Precision with_gradients(const nn::Model& model, const Precision& policy) {
  if (policy.main_gradients)
    for (const Param& param : model.params()) param.tensor.set_grad_dtype(policy.master);
  return policy;
}

// Sums are of losses that are divided by the weight of the whole batch already.
std::unique_ptr<parallel::Sync> ranks_sync(const nn::Model& model, const RunOptions& options,
                                           const Ranks& ranks) {
  const c10::ScalarType wire = policy_of(options.train).reduce;
  const auto stage = static_cast<int>(options.train.zero);
  const parallel::ReplicasOf replicas = ranks.replicas_of();  // all ranks make these groups
  const comm::Group shard = ranks.shard(), owners = ranks.owners();
  const bool on_host = options.memory.offloads("parameters");
  if (!ranks.sums() && !on_host) return nullptr;
  if (stage == 0 || model.params().empty())
    return std::make_unique<parallel::Replicate>(
        model.params(), replicas, owners,
        parallel::ReplicateOptions{.average = false, .wire = wire, .buffers = model.buffers()});
  parallel::ZeroOptions zero;
  zero.stage = stage;
  zero.average = false;
  zero.keep_gathered = options.train.keep_gathered;
  zero.late = ranks.mesh.size(parallel::Axis::pipeline) > 1;
  zero.reduce = wire;
  zero.host = on_host;
  zero.give_grads = host_updates(options);
  zero.buffers = model.buffers();
  zero.initial = [&model](const std::string& name, const at::Tensor& values, int64_t first) {
    model.initial(name, values, first);
  };
  return std::make_unique<parallel::Zero>(parallel::units_of(model.params(), model.blocks()), shard,
                                          replicas, owners, zero);
}

// The optimizer's side goes to the host, unless the weights are there: then it is where they are.
std::unique_ptr<parallel::Sync> sync_of(const nn::Model& model, const RunOptions& options,
                                        const Ranks& ranks) {
  std::unique_ptr<parallel::Sync> inner = ranks_sync(model, options, ranks);
  if (!host_updates(options)) return inner;
  const parallel::HostOptions host{
      .master = policy_of(options.train).master,
      .delay_from = options.memory.delay,
      .stream = ranks.mesh.size(parallel::Axis::pipeline) == 1,  // else tied weights are summed
      .weights_on_host = options.memory.offloads("parameters")};
  if (inner == nullptr) return std::make_unique<parallel::HostParams>(model.params(), host);
  return std::make_unique<parallel::HostParams>(std::move(inner), host);
}

BlockRunner* blocks_of(parallel::Sync* sync) {
  const auto* host = dynamic_cast<parallel::HostParams*>(sync);
  return dynamic_cast<BlockRunner*>(host != nullptr ? host->inner() : sync);
}

// Averages are of the weights that the model computes with.
std::optional<optim::Ema> ema_of(const std::vector<Param>& params, const RunOptions& options,
                                 bool host) {
  if (options.train.ema <= 0) return std::nullopt;
  const Precision policy = policy_of(options.train);
  const bool rounded = host && policy.param != policy.master;
  return optim::Ema(params, options.train.ema,
                    rounded ? std::optional(policy.param) : std::nullopt);
}

std::unique_ptr<memory::Stash> stash_of(const memory::MemoryOptions& options, c10::Device device) {
  return options.stashes() ? memory::make_stash(memory::stash_options(options, device)) : nullptr;
}

std::unique_ptr<memory::Recompute> recompute_of(const memory::MemoryOptions& options,
                                                memory::Stash* stash) {
  if (options.recompute == memory::Again::none) return nullptr;
  return std::make_unique<memory::Recompute>(memory::recompute_options(options), stash);
}

}  // namespace

StepParts::StepParts(nn::Model& model, const RunOptions& options, c10::Device device,
                     const Ranks& ranks)
    : policy(with_gradients(model, policy_of(options.train))),
      rounds(ranks.control, ranks.copies()),
      sync(sync_of(model, options, ranks)),
      host(dynamic_cast<parallel::HostParams*>(sync.get())),
      blocks(blocks_of(sync.get())),
      stash(stash_of(options.memory, device)),
      recompute(recompute_of(options.memory, stash.get())),
      staged(ranks.mesh.size(parallel::Axis::pipeline) > 1
                 ? std::make_unique<Staged>(model, options, ranks)
                 : nullptr),
      params(sync != nullptr ? sync->params() : model.params()),
      optimizer(params, options.optimizer.rule, policy.master),
      scaler(policy.scaled_loss
                 ? std::optional<optim::LossScaler>(std::in_place, options.optimizer.scaler, device)
                 : std::nullopt),
      ema(ema_of(params, options, host != nullptr)),
      step(model, optimizer,
           {.loss = options.train.loss,
            .micro_batch = options.train.micro_batch.value_or(0),
            .clip = options.train.clip,
            .experts = experts_of(options.model) > 0 ||
                       (options.model.name == nn::ModelName::own && has_experts(model))},
           scaler ? &*scaler : nullptr,
           {.sync = sync.get(),
            .host = host,
            .rounds = ranks.alone() ? nullptr : &rounds,
            .losses = ranks.losses(),
            .tokens = ranks.tokens(),
            .owners = ranks.owners(),
            .blocks = blocks,
            .segments = recompute.get(),
            .stash = stash.get(),
            .staged = staged.get(),
            .phase = ranks.phase}) {
  if (device.is_cuda() && options.train.deterministic) repeat_bits();
  if (device.is_cuda() && accelerator() != nullptr) {
    if (policy.fp8 != Fp8::off) check_fp8_device(device);
    accelerator()->allow_tf32(policy.tf32);
    accelerator()->tune_products(options.train.tune);
  }
  no_graph = graph_refusal(options, device, ranks);
  if (no_graph.empty() && observer() != nullptr)
    no_graph = "instruments look at each operator of the run";
  if (options.train.graph == UseGraph::off || !no_graph.empty()) return;
  if (params.empty() || !has_data(params.front().tensor)) return;  // a dry run
  graph = std::make_unique<StepGraph>(
      accelerator()->capture_pool(device.index()), device,
      [this](const data::Batch& batch, const nn::Pass& pass, const optim::LearningRate& lr) {
        return whole_step(batch, pass, lr);
      });
}

StepResult StepParts::whole_step(const data::Batch& batch, const nn::Pass& pass,
                                 const optim::LearningRate& lr) {
  StepResult result = step.run(batch, pass, lr);
  if (ema) ema->update();
  return result;
}

StepResult StepParts::run(const data::Batch& batch, const nn::Pass& pass, double lr) {
  if (graph == nullptr) return whole_step(batch, pass, lr);
  return graph->run(batch, pass, {.lr = lr, .shares = step.shares(batch), .eager = eager});
}

void StepParts::beside(const std::function<void()>& work) const {
  if (graph != nullptr)
    graph->beside(work);
  else
    work();
}

at::Tensor StepParts::forward(nn::Model& model, const at::Tensor& input, nn::Pass pass) {
  pass.blocks = blocks;
  return staged != nullptr ? staged->forward(input, pass) : nn::run(model, input, pass);
}

void StepParts::swap_averages() {
  if (!ema) return;
  ema->swap();
  if (sync != nullptr) sync->publish();
}

}  // namespace braid::train
