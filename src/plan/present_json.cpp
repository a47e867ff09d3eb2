// SPDX-License-Identifier: BSD-3-Clause
#include "plan/present_json.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "braid/core/observe.h"

namespace braid::plan {
namespace {

// JSON knows no infinity.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json mesh_object(const parallel::MeshOptions& mesh) {
  return {{"data", mesh.data.value_or(1)}, {"shard", mesh.shard.value_or(1)},
          {"tensor", mesh.tensor},         {"context", mesh.context},
          {"pipeline", mesh.pipeline},     {"expert", mesh.expert}};
}

Json peak_object(const RankPeak& peak) {
  return {{"ranks", peak.name},        {"requested", peak.bytes},
          {"reserved", peak.reserved}, {"device", peak.device},
          {"host", peak.host},         {"moment", peak.moment},
          {"module", peak.module},     {"by_category", kinds_object(peak.by_kind)}};
}

Json headed(const Request& request) {
  return {{"request", request_object(request)}, {"cluster", cluster_object(request.cluster)}};
}

Json points_array(const std::vector<ScalingPoint>& points) {
  Json array = Json::array();
  for (const ScalingPoint& point : points)
    array.push_back({{"gpus", point.gpus},
                     {"samples_per_s", finite(point.samples_per_second)},
                     {"efficiency", finite(point.efficiency)},
                     {"plan", plan_object(point.plan)}});
  return array;
}

}  // namespace

int64_t batch_asked(const Request& request) {
  if (request.global_batch > 0) return request.global_batch;
  return request.options.train.local_batch ? 0 : request.options.train.global_batch.value_or(1);
}

const std::string& precision_word(const Plan& plan) {
  return plan.choice.precision.empty() ? plan.options.train.precision : plan.choice.precision;
}

std::string reason_word(const Plan& plan) {
  return plan.reason.empty() && plan.fits ? "fastest" : plan.reason;
}

std::string model_word(const train::RunOptions& options) {
  static constexpr std::array<const char*, 5> words = {"mlp", "vit", "swinir", "gpt", "llama"};
  return words[static_cast<size_t>(options.model.name)];
}

std::string_view recompute_word(memory::Again again) {
  static constexpr std::array<std::string_view, 5> words = {"none", "blocks", "attention",
                                                            "matmuls", "budget"};
  return words[static_cast<size_t>(again)];
}

Json kinds_object(const memory::KindBytes& by_kind) {
  Json kinds = Json::object();
  for (int kind = 0; kind < memory_kinds; ++kind) {
    std::string name(to_text(static_cast<MemoryKind>(kind)));
    std::replace(name.begin(), name.end(), ' ', '_');
    kinds[name] = by_kind[static_cast<size_t>(kind)];
  }
  return kinds;
}

std::vector<std::pair<std::string, double>> named_parts(const TimeParts& parts) {
  return {{"forward", parts.forward},
          {"backward", parts.backward},
          {"recompute", parts.recompute},
          {"optimizer", parts.optimizer},
          {"communication", parts.communication},
          {"copies", parts.copies},
          {"bubble", parts.bubble},
          {"launch", parts.launch},
          {"data", parts.data},
          {"checkpoint", parts.checkpoint}};
}

Json parts_object(const TimeParts& parts) {
  Json object = Json::object();
  for (const auto& [name, seconds] : named_parts(parts)) object[name] = finite(seconds);
  return object;
}

Json request_object(const Request& request) {
  return {{"config", request.options.run.spec},
          {"model", model_word(request.options)},
          {"gpus", request.gpus},
          {"memory", memory_limit(request)},
          {"global_batch", batch_asked(request)},
          {"precisions", request.precisions.empty()
                             ? std::vector<std::string>{request.options.train.precision}
                             : request.precisions},
          {"offload", request.offload}};
}

Json cluster_object(const Cluster& cluster) {
  return {{"name", cluster.name},
          {"title", cluster.title},
          {"gpu", cluster.gpu.name},
          {"gpu_memory", cluster.gpu.memory.count},
          {"gpus_per_node", cluster.gpus_per_node},
          {"nodes", cluster.nodes},
          {"fitted_on", cluster.gpu.fitted_on},
          {"source", cluster.source}};
}

Json plan_object(const Plan& plan) {
  const StepTime& time = plan.time;
  const bool tokens = time.tokens_per_second > 0;
  Json peaks = Json::array();
  for (const RankPeak& peak : plan.peaks) peaks.push_back(peak_object(peak));
  return {{"layout", layout_text(plan.choice)},
          {"mesh", mesh_object(plan.choice.mesh)},
          {"zero", plan.choice.zero},
          {"recompute", std::string(recompute_word(plan.choice.recompute))},
          {"micro_batch", plan.choice.micro_batch},
          {"schedule", std::string(parallel::to_text(plan.choice.schedule))},
          {"precision", precision_word(plan)},
          {"offload", plan.choice.offload},
          {"fits", plan.fits},
          {"peak", plan.peak_bytes},
          {"peak_bytes", std::move(peaks)},
          {"step_seconds", finite(time.seconds)},
          {"parts", parts_object(time.parts)},
          {"hidden_communication", finite(time.hidden_communication)},
          {"tokens_or_samples_per_s",
           finite(tokens ? time.tokens_per_second : time.samples_per_second)},
          {"per_s_of", tokens ? "tokens" : "samples"},
          {"samples_per_s", finite(time.samples_per_second)},
          {"flops_per_s_of_a_gpu", finite(time.flops_per_second)},
          {"mfu", finite(time.model_utilisation)},
          {"gpu_hours", finite(plan.gpu_hours)},
          {"reason", reason_word(plan)}};
}

std::string found_json(const Request& request, const Found& found, size_t top) {
  Json json = headed(request);
  json["search"] = {{"choices", found.choices},   {"pruned", found.pruned},
                    {"dry_runs", found.dry_runs}, {"seconds", finite(found.seconds)},
                    {"late", found.late},         {"notes", found.notes}};
  json["plans"] = Json::array();
  for (const Plan& plan : found.plans)
    if (top == 0 || json["plans"].size() < top) json["plans"].push_back(plan_object(plan));
  return json.dump();
}

std::string answer_json(const Request& request, const Answer& answer) {
  Json json = headed(request);
  json["answer"] = {{"value", answer.value}, {"text", answer.text}};
  json["plans"] = Json::array();
  if (answer.value > 0) json["plans"].push_back(plan_object(answer.plan));
  return json.dump();
}

std::string scaling_json(const Request& request, const Scaling& scaling) {
  Json json = headed(request);
  json["scaling"] = {{"strong", points_array(scaling.strong)},
                     {"strong_below_75", scaling.strong_below},
                     {"weak", points_array(scaling.weak)},
                     {"weak_below_75", scaling.weak_below}};
  return json.dump();
}

std::string effect_json(const Request& request, const Effect& effect) {
  Json json = headed(request);
  json["effect"] = {{"sets", effect.sets},
                    {"text", effect.text},
                    {"before", plan_object(effect.before)},
                    {"after", plan_object(effect.after)}};
  return json.dump();
}

}  // namespace braid::plan
