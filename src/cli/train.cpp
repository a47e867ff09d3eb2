// SPDX-License-Identifier: BSD-3-Clause
// braid train CONFIG: trains, validates, saves.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "braid/launch/environment.h"
#include "braid/train/job.h"
#include "braid/train/session.h"
#include "cli/command.h"
#include "cli/ranks.h"

namespace braid::cli {
namespace {

struct TrainArguments {
  ConfigArguments config;
  int ranks = 0;
  bool resume = false;
  bool quiet = false;
  bool json = false;
};

nlohmann::json as_json(const EndRecord& end, const std::string& dir) {
  return {{"dir", dir},
          {"step", end.step},
          {"seconds", end.seconds},
          {"reason", end.reason},
          {"metrics", end.metrics}};
}

void print_verdict(const EndRecord& end, const std::string& dir) {
  const auto rmse = end.metrics.find("rmse");
  const auto persistence = end.metrics.find("persistence");
  if (rmse != end.metrics.end() && persistence != end.metrics.end()) {
    const double gain = persistence->second / rmse->second;
    fmt::print("validation RMSE {:.4f}, persistence (output = input) {:.4f}: {:.1f} times {}\n",
               rmse->second, persistence->second, gain < 1 ? 1 / gain : gain,
               gain < 1 ? "larger, so persistence is the better forecast" : "smaller");
  }
  fmt::print("results are in {} (report.html, log.jsonl, checkpoints/)\n", dir);
}

// `dir` becomes the folder that the run has taken.
EndRecord train_as_rank(const TrainArguments& arguments, const train::RunOptions& options,
                        const launch::Environment& here, std::string& dir) {
  const bool quiet = arguments.quiet || arguments.json;
  train::Job job(options, here);
  train::Session session;
  return job.watched([&] {
    session = train::open_session(
        options, {.terminal = {.is_tty = here.stderr_is_tty && !quiet, .columns = here.columns},
                  .ranks = job.ranks(),
                  .resume = arguments.resume,
                  .claimed = here.run_number > 0,
                  .quiet = quiet,
                  .config_spec = arguments.config.spec});
    dir = session.dir;
    return session.trainer->fit();
  });
}

Exit train_command(const TrainArguments& arguments) {
  launch::Environment here = launch::environment();
  const train::RunOptions options = train::numbered(arguments.config.load(), here.run_number);
  // One sentence here instead of one from every rank.
  if (arguments.ranks > 1) train::check_ranks(options, arguments.ranks);
  const train::Use use = arguments.resume ? train::Use::resume : train::Use::fresh;
  if (const auto ended = start_ranks(arguments.ranks, here, options, use)) return *ended;
  std::string dir;
  const EndRecord end = train_as_rank(arguments, options, here, dir);
  if (here.rank != 0) return end.reason == "signal" ? Exit::interrupted : Exit::ok;
  if (arguments.json)
    fmt::print("{}\n", as_json(end, dir).dump());
  else
    print_verdict(end, dir);
  return end.reason == "signal" ? Exit::interrupted : Exit::ok;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command =
      app.add_subcommand("train", "train a model: validate, save checkpoints and write a report");
  add_config(*command, arguments->config);
  add_ranks(*command, arguments->ranks);
  command->add_flag("--resume", arguments->resume,
                    "continue from the newest complete checkpoint in run.dir");
  command->add_flag("--quiet", arguments->quiet,
                    "print warnings only; all files are written as usual");
  add_json(*command, arguments->json);
  command->footer(
      "Ctrl-C, SIGTERM and SIGUSR1 finish the current step, save a checkpoint and exit with code "
      "75; --resume continues from there.");
  command->callback(
      [&action, arguments] { action = [arguments] { return train_command(*arguments); }; });
}

}  // namespace braid::cli
