// SPDX-License-Identifier: BSD-3-Clause
// braid report RUN...: one HTML page of one or several runs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "braid/core/fs.h"
#include "braid/report/html.h"
#include "cli/command.h"

namespace braid::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string out = "report.html";
  bool json = false;
};

nlohmann::json as_json(const report::RunSummary& run) {
  nlohmann::json metrics = nlohmann::json::object();
  for (const auto& [name, value] : run.metrics) metrics[name] = value;
  return {{"name", run.name},           {"steps", run.steps},
          {"loss", run.loss},           {"seconds", run.seconds},
          {"memory", run.memory},       {"samples_per_second", run.samples_per_second},
          {"tflops", run.tflops},       {"ranks", run.ranks},
          {"comm_wait", run.comm_wait}, {"metrics", std::move(metrics)}};
}

Exit report_command(const ReportArguments& arguments) {
  const std::vector<std::filesystem::path> runs(arguments.runs.begin(), arguments.runs.end());
  if (arguments.json) {
    nlohmann::json result = {{"runs", nlohmann::json::array()}};
    for (const auto& run : runs) result["runs"].push_back(as_json(report::summarize(run)));
    fmt::print("{}\n", result.dump());
    return Exit::ok;
  }
  write_atomic(arguments.out, report::html_report(runs));
  fmt::print("wrote {}\n", arguments.out);
  return Exit::ok;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand("report", "write one HTML page for one or several runs");
  command->add_option("runs", arguments->runs, "run folders")->required()->type_name("RUN");
  command->add_option("--out", arguments->out, "HTML file to write");
  add_json(*command, arguments->json);
  command->callback(
      [&action, arguments] { action = [arguments] { return report_command(*arguments); }; });
}

}  // namespace braid::cli
