// SPDX-License-Identifier: BSD-3-Clause
// braid data check|stats: what is wrong with given fields, and their means and deviations.
#include "cli/data_given.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "braid/core/units.h"
#include "braid/data/check.h"
#include "braid/data/stats.h"

namespace braid::cli {
namespace {

struct GivenArguments {
  std::string dir;
  data::CheckOptions options;  // of stats: the names
  std::string out;             // of stats
  bool json = false;
};

std::string counted(int64_t count, const char* thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

void print_finding(const data::Finding& finding) {
  const bool named = finding.problem.starts_with(finding.file);
  fmt::print("{} {}{}{}\n", finding.fatal ? "BAD " : "note", named ? "" : finding.file,
             named ? "" : ": ", finding.problem);
}

Exit check_command(const GivenArguments& arguments) {
  const data::CheckReport report =
      data::check_data(arguments.dir, arguments.options, progress_line("frame"));
  bool broken = false;
  nlohmann::json findings = nlohmann::json::array();
  for (const data::Finding& finding : report.findings) {
    broken = broken || finding.fatal;
    findings.push_back(
        {{"file", finding.file}, {"problem", finding.problem}, {"fatal", finding.fatal}});
    if (!arguments.json) print_finding(finding);
  }
  if (arguments.json)
    fmt::print("{}\n", nlohmann::json{{"files", report.files},
                                      {"frames", report.frames},
                                      {"bytes", report.bytes},
                                      {"shape", report.shape},
                                      {"findings", findings}}
                           .dump());
  else
    fmt::print("{}, {} of [{}], {}: {}\n", counted(report.files, "file"),
               counted(report.frames, "frame"), fmt::join(report.shape, ", "),
               to_text(Bytes{report.bytes}), broken ? "there are problems" : "all good");
  return broken ? Exit::data : Exit::ok;
}

nlohmann::json as_json(const data::FieldStats& stats) {
  nlohmann::json channels = nlohmann::json::array();
  for (const data::ChannelStats& channel : stats.channels)
    channels.push_back({{"name", channel.name},
                        {"mean", channel.mean},
                        {"std", channel.std},
                        {"least", channel.least},
                        {"most", channel.most},
                        {"missing", channel.missing}});
  return {{"files", stats.files},
          {"frames", stats.frames},
          {"shape", {stats.channels.size(), stats.height, stats.width}},
          {"channels", channels}};
}

void print_table(const data::FieldStats& stats) {
  fmt::print("{:<16} {:>14} {:>14} {:>14} {:>14} {:>12}\n{:-<89}\n", "channel", "mean", "std",
             "least", "most", "missing", "");
  for (const data::ChannelStats& channel : stats.channels)
    fmt::print("{:<16} {:>14.6g} {:>14.6g} {:>14.6g} {:>14.6g} {:>12}\n", channel.name,
               channel.mean, channel.std, channel.least, channel.most, channel.missing);
  fmt::print("{:-<89}\n{}, {} of [{}, {}, {}]\n", "", counted(stats.files, "file"),
             counted(stats.frames, "frame"), stats.channels.size(), stats.height, stats.width);
}

void print_notes(const data::FieldStats& stats) {
  for (const data::ChannelStats& channel : stats.channels) {
    if (channel.missing > 0)
      fmt::print(
          "note: channel {}: the missing values are left out here; training stops at one unless "
          "data.missing is fill\n",
          channel.name);
    if (channel.std == 0)
      fmt::print(
          "note: channel {} is {} everywhere: 1 is its std in the file, as fields are "
          "divided by it\n",
          channel.name, channel.mean);
  }
}

Exit stats_command(const GivenArguments& arguments) {
  const data::FieldStats stats =
      data::field_stats(arguments.dir, arguments.options.names, progress_line("frame"));
  if (!arguments.out.empty()) data::write_stats(arguments.out, stats.channels);
  if (arguments.json) {
    fmt::print("{}\n", as_json(stats).dump());
    return Exit::ok;
  }
  print_table(stats);
  print_notes(stats);
  if (arguments.out.empty())
    fmt::print("--out DIR writes them for data.means and data.stds\n");
  else
    fmt::print(
        "use them: --set data.means={0}/global_means.npy --set data.stds={0}/global_stds.npy\n",
        arguments.out);
  return Exit::ok;
}

CLI::App* add_given(CLI::App& data, const char* name, const char* help, const char* what,
                    GivenArguments& arguments) {
  CLI::App* command = data.add_subcommand(name, help);
  command->add_option("dir", arguments.dir, what)->required()->type_name("PATH");
  data::FieldNames& names = arguments.options.names;
  CLI::Option* dataset =
      command->add_option("--dataset", names.dataset, "name of the dataset in the files");
  command
      ->add_option("--variables", names.variables,
                   "variables to use instead of one dataset, one per channel, e.g. u10,v10,t2m")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(dataset)
      ->type_name("NAME,...");
  command
      ->add_option("--levels", names.levels,
                   "levels of netCDF variables to take, by their values, e.g. 850,500 (default: "
                   "all)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("VALUE,...");
  add_json(*command, arguments.json);
  return command;
}

}  // namespace

void add_data_check(CLI::App& data, Action& action) {
  auto arguments = std::make_shared<GivenArguments>();
  CLI::App* check =
      add_given(data, "check", "find damaged files, missing values, wrong shapes, gaps in time",
                "a file, or a folder of HDF5 or netCDF-4 files", *arguments);
  check
      ->add_option_function<std::string>(
          "--missing",
          [arguments](const std::string& word) {
            arguments->options.missing =
                word == "fill" ? data::Missing::fill : data::Missing::error;
          },
          "as data.missing of the config: error (default) counts missing values as a problem, fill "
          "as a note")
      ->check(CLI::IsMember({"error", "fill"}))
      ->type_name("RULE");
  check->callback(
      [&action, arguments] { action = [arguments] { return check_command(*arguments); }; });
}

void add_data_stats(CLI::App& data, Action& action) {
  auto arguments = std::make_shared<GivenArguments>();
  CLI::App* stats = add_given(
      data, "stats", "compute mean, standard deviation and range of every channel",
      "training data: folder of HDF5 or netCDF-4 files, one file, or a pattern", *arguments);
  stats
      ->add_option(
          "--out", arguments->out,
          "folder for global_means.npy and global_stds.npy, which data.means and data.stds read")
      ->type_name("DIR");
  stats->callback(
      [&action, arguments] { action = [arguments] { return stats_command(*arguments); }; });
}

}  // namespace braid::cli
