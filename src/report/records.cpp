// SPDX-License-Identifier: BSD-3-Clause
#include "report/records.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace braid::report {
namespace {

using Json = nlohmann::ordered_json;

std::string dump_line(const Json& json) {
  // Names of runs may hold bytes that are not UTF-8; they must not end a training.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Microseconds are what a clock can tell of a step, and half the bytes.
double microseconds(double seconds) { return std::round(seconds * 1e6) / 1e6; }

Json json_of_spread(const Spread& spread) {
  return {{"min", microseconds(spread.min)},
          {"median", microseconds(spread.median)},
          {"max", microseconds(spread.max)}};
}

void add_each_rank(Json& json, const std::vector<RankTime>& ranks) {
  for (const char* name : {"rank_seconds", "rank_data_wait", "rank_comm_wait"})
    json[name] = Json::array();
  for (const RankTime& rank : ranks) {
    json["rank_seconds"].push_back(microseconds(rank.seconds));
    json["rank_data_wait"].push_back(microseconds(rank.data_wait));
    json["rank_comm_wait"].push_back(microseconds(rank.comm_wait));
  }
}

void add_spread(Json& json, const RankSpread& spread) {
  json["rank_spread"] = {{"ranks", spread.ranks},
                         {"seconds", json_of_spread(spread.seconds)},
                         {"busy", json_of_spread(spread.busy)},
                         {"own_work", json_of_spread(spread.own_work)},
                         {"data_wait", json_of_spread(spread.data_wait)},
                         {"comm_wait", json_of_spread(spread.comm_wait)}};
  json["slowest_ranks"] = Json::array();
  for (const auto& [rank, time] : spread.slowest)
    json["slowest_ranks"].push_back({{"rank", rank},
                                     {"seconds", microseconds(time.seconds)},
                                     {"data_wait", microseconds(time.data_wait)},
                                     {"comm_wait", microseconds(time.comm_wait)}});
}

void add_ranks(Json& json, const std::vector<RankTime>& ranks) {
  if (ranks.size() > most_ranks_kept)
    add_spread(json, spread_of(ranks));
  else
    add_each_rank(json, ranks);
  json["slowest_rank"] = slowest_first(ranks).front();
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string to_line(const RunInfo& info) {
  return dump_line({{"type", "run"},
                    {"time", seconds_since_1970()},
                    {"name", info.name},
                    {"dir", info.dir},
                    {"model", info.model},
                    {"config", info.config},
                    {"config_spec", info.config_spec},
                    {"device", info.device},
                    {"parameters", info.parameters},
                    {"samples_per_epoch", info.samples_per_epoch},
                    {"steps_per_epoch", info.steps_per_epoch},
                    {"total_steps", info.total_steps},
                    {"first_step", info.first_step},
                    {"global_batch", info.global_batch},
                    {"tokens_per_sample", info.tokens_per_sample},
                    {"ranks", info.ranks},
                    {"mesh", info.mesh},
                    {"latency", info.latency},
                    {"flops_per_sample", info.flops_per_sample},
                    {"peak_flops", info.peak_flops}});
}

std::string to_line(const StepRecord& record) {
  Json json = {{"type", "step"},
               {"step", record.step},
               {"epoch", record.epoch},
               {"loss", record.loss},
               {"lr", record.lr},
               {"samples", record.samples},
               {"tokens", record.tokens},
               {"seconds", record.seconds},
               {"data_wait", record.data_wait},
               {"comm_wait", record.comm_wait},
               {"memory", record.memory},
               {"tflops", record.tflops}};
  if (record.grad_norm) json["grad_norm"] = *record.grad_norm;
  if (record.loss_scale) json["loss_scale"] = *record.loss_scale;
  if (record.skipped) json["skipped"] = true;
  if (record.aux_loss) json["aux_loss"] = *record.aux_loss;
  if (record.max_load) json["max_load"] = *record.max_load;
  if (!record.ranks.empty()) add_ranks(json, record.ranks);
  return dump_line(json);
}

std::string to_line(const EpochRecord& record) {
  return dump_line({{"type", "epoch"},
                    {"epoch", record.epoch},
                    {"step", record.step},
                    {"steps", record.steps},
                    {"train_loss", record.train_loss},
                    {"lr", record.lr},
                    {"seconds", record.seconds},
                    {"samples_per_second", record.samples_per_second}});
}

std::string to_line(const ValidRecord& record) {
  return dump_line({{"type", "valid"},
                    {"split", record.split},
                    {"epoch", record.epoch},
                    {"step", record.step},
                    {"samples", record.samples},
                    {"loss", record.loss},
                    {"seconds", record.seconds},
                    {"metrics", record.metrics}});
}

std::string to_line(const EventRecord& record) {
  return dump_line({{"type", "event"},
                    {"time", seconds_since_1970()},
                    {"kind", record.kind},
                    {"step", record.step},
                    {"text", record.text}});
}

std::string to_line(const EndRecord& record) {
  return dump_line({{"type", "end"},
                    {"time", seconds_since_1970()},
                    {"step", record.step},
                    {"seconds", record.seconds},
                    {"reason", record.reason},
                    {"metrics", record.metrics}});
}

}  // namespace braid::report
