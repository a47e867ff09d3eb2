// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "braid/core/error.h"
#include "braid/core/regular_file.h"
#include "core/json.h"
#include "report/records.h"

namespace braid::report {
namespace {

using LogJson = nlohmann::json;

double number_of(const LogJson& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

double number_at(const LogJson& json, const char* key) { return number_of(json.at(key)); }

double number_or_zero(const LogJson& json, const char* key) {
  return json.contains(key) ? number_at(json, key) : 0;
}

int64_t integer_at(const LogJson& json, const char* key) { return integer_of(json.at(key), key); }

std::string text_at(const LogJson& json, const char* key) {
  return json.at(key).get<std::string>();
}

std::map<std::string, double> metrics_of(const LogJson& json) {
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : json.at("metrics").items()) metrics[name] = number_of(value);
  return metrics;
}

RunInfo run_of(const LogJson& json) {
  return {.name = text_at(json, "name"),
          .dir = text_at(json, "dir"),
          .model = text_at(json, "model"),
          .config = text_at(json, "config"),
          .config_spec = text_at(json, "config_spec"),
          .device = text_at(json, "device"),
          .parameters = integer_at(json, "parameters"),
          .samples_per_epoch = integer_at(json, "samples_per_epoch"),
          .steps_per_epoch = integer_at(json, "steps_per_epoch"),
          .total_steps = integer_at(json, "total_steps"),
          .first_step = integer_at(json, "first_step"),
          .global_batch = integer_at(json, "global_batch"),
          .tokens_per_sample = integer_at(json, "tokens_per_sample"),
          .ranks = json.contains("ranks") ? integer_at(json, "ranks") : 1,  // not in older logs
          .mesh = json.value("mesh", std::string()),
          .latency = number_or_zero(json, "latency"),
          .flops_per_sample = number_at(json, "flops_per_sample"),
          .peak_flops = number_at(json, "peak_flops")};
}

RankTime rank_time_of(const LogJson& json) {
  return {number_at(json, "seconds"), number_at(json, "data_wait"), number_at(json, "comm_wait")};
}

std::vector<RankTime> ranks_of(const LogJson& json) {
  std::vector<RankTime> ranks;
  if (!json.contains("rank_seconds")) return ranks;
  const LogJson &seconds = json.at("rank_seconds"), &data = json.at("rank_data_wait"),
                &comm = json.at("rank_comm_wait");
  for (size_t i = 0; i < seconds.size(); ++i)
    ranks.push_back({number_of(seconds.at(i)), number_of(data.at(i)), number_of(comm.at(i))});
  return ranks;
}

Spread spread_at(const LogJson& json, const char* key) {
  const LogJson& spread = json.at(key);
  return {number_at(spread, "min"), number_at(spread, "median"), number_at(spread, "max")};
}

RankSpread rank_spread_of(const LogJson& json) {
  const LogJson& all = json.at("rank_spread");
  RankSpread spread{.step = integer_at(json, "step"),
                    .ranks = integer_at(all, "ranks"),
                    .seconds = spread_at(all, "seconds"),
                    .busy = spread_at(all, "busy"),
                    .own_work = spread_at(all, "own_work"),
                    .data_wait = spread_at(all, "data_wait"),
                    .comm_wait = spread_at(all, "comm_wait")};
  for (const LogJson& rank : json.at("slowest_ranks"))
    spread.slowest.push_back({integer_at(rank, "rank"), rank_time_of(rank)});
  return spread;
}

StepRecord step_of(const LogJson& json) {
  StepRecord record{.step = integer_at(json, "step"),
                    .epoch = integer_at(json, "epoch"),
                    .loss = number_at(json, "loss"),
                    .lr = number_at(json, "lr"),
                    .samples = integer_at(json, "samples"),
                    .tokens = integer_at(json, "tokens"),
                    .seconds = number_at(json, "seconds"),
                    .data_wait = number_at(json, "data_wait"),
                    .memory = integer_at(json, "memory"),
                    .tflops = number_at(json, "tflops"),
                    .grad_norm = std::nullopt,
                    .loss_scale = std::nullopt,
                    .skipped = json.value("skipped", false),
                    .comm_wait = number_or_zero(json, "comm_wait"),
                    .ranks = ranks_of(json),
                    .aux_loss = std::nullopt,
                    .max_load = std::nullopt};
  if (json.contains("grad_norm")) record.grad_norm = number_at(json, "grad_norm");
  if (json.contains("loss_scale")) record.loss_scale = number_at(json, "loss_scale");
  if (json.contains("aux_loss")) record.aux_loss = number_at(json, "aux_loss");
  if (json.contains("max_load")) record.max_load = number_at(json, "max_load");
  return record;
}

EpochRecord epoch_of(const LogJson& json) {
  return {.epoch = integer_at(json, "epoch"),
          .step = integer_at(json, "step"),
          .steps = integer_at(json, "steps"),
          .train_loss = number_at(json, "train_loss"),
          .lr = number_at(json, "lr"),
          .seconds = number_at(json, "seconds"),
          .samples_per_second = number_at(json, "samples_per_second")};
}

ValidRecord valid_of(const LogJson& json) {
  return {.split = text_at(json, "split"),
          .epoch = integer_at(json, "epoch"),
          .step = integer_at(json, "step"),
          .samples = integer_at(json, "samples"),
          .loss = number_at(json, "loss"),
          .seconds = number_at(json, "seconds"),
          .metrics = metrics_of(json)};
}

void take_line(RunLog& log, const LogJson& json) {
  const std::string type = text_at(json, "type");
  if (type == "run") log.info = run_of(json);
  if (type == "step") log.steps.push_back(step_of(json));
  if (type == "step" && json.contains("rank_spread")) log.spreads.push_back(rank_spread_of(json));
  if (type == "epoch") log.epochs.push_back(epoch_of(json));
  if (type == "valid") log.valids.push_back(valid_of(json));
  if (type == "event")
    log.events.push_back({text_at(json, "kind"), integer_at(json, "step"), text_at(json, "text")});
  if (type == "end")
    log.ends.push_back({integer_at(json, "step"), number_at(json, "seconds"),
                        text_at(json, "reason"), metrics_of(json)});
}

std::ifstream open_log(const std::filesystem::path& file) {
  refuse_irregular(file);
  std::ifstream stream(file);
  if (!stream)
    throw DataError({.what = fmt::format("no log at {}", file.string()),
                     .why = "a run keeps its records in log.jsonl of its folder",
                     .fix = "name the folder of a run, e.g. runs/demo; report.to of its config "
                            "must hold jsonl"});
  return stream;
}

// False at the end, and at a last line without '\n': that one is still being written, or never was
// to its end.
bool next_line(std::ifstream& stream, std::string& line) {
  return std::getline(stream, line) && !stream.eof();
}

// Why the line is not a record that `take` can use; empty: it has used it.
template <class Take>
std::string fault_of(const std::string& line, const Take& take) {
  try {
    const LogJson json = parse_json(line);
    if (!json.is_object()) return "it is not a JSON object";
    take(json);
    return "";
  } catch (const LogJson::exception& error) {
    return json_fault(error);
  } catch (const JsonFault& error) {
    return error.what();
  }
}

}  // namespace

RunLog read_log(const std::filesystem::path& file) {
  RunLog log;
  std::string line;
  bool started = false;
  std::ifstream stream = open_log(file);
  for (int64_t number = 1; next_line(stream, line); ++number) {
    const std::string fault = fault_of(line, [&](const LogJson& json) {
      take_line(log, json);
      started = started || json.at("type") == "run";
    });
    if (!fault.empty())
      throw DataError({.what = fmt::format("this is not a record: {}", fault),
                       .why = "each line of a log is one JSON object with the fields of its type",
                       .fix = "take that line out of the file, or name another run",
                       .where = fmt::format("{}:{}", file.string(), number)});
  }
  if (!started)
    throw DataError({.what = fmt::format("{} has no record of type run", file.string()),
                     .why = "a run writes that record before any other",
                     .fix = "name the folder of a run that has started"});
  return log;
}

// Lines that are no records of a run (a power cut left them, or another program wrote them) are
// passed over: they must not keep a run from going on.
std::string lines_until(const std::filesystem::path& file, int64_t step) {
  std::string kept, line;
  std::ifstream stream = open_log(file);
  while (next_line(stream, line)) {
    int64_t at = 0;
    const std::string fault = fault_of(line, [&](const LogJson& json) {
      RunLog record;
      take_line(record, json);
      const char* key = json.at("type") == "run" ? "first_step" : "step";
      if (json.contains(key)) at = integer_at(json, key);
    });
    if (!fault.empty() || at > step) continue;
    kept += line;
    kept += '\n';
  }
  return kept;
}

}  // namespace braid::report
