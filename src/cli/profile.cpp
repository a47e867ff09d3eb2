// SPDX-License-Identifier: BSD-3-Clause
// braid profile CONFIG: a few steps of the config's run, and where their time and memory went.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "braid/core/fs.h"
#include "braid/launch/environment.h"
#include "braid/report/trace.h"
#include "braid/train/job.h"
#include "braid/train/session.h"
#include "cli/command.h"
#include "cli/ranks.h"

namespace braid::cli {
namespace {

struct ProfileArguments {
  ConfigArguments config;
  int ranks = 0;
  std::optional<int64_t> steps, wait, warm_up;
  bool json = false;
};

// The config's run as it is, but that it ends with the profile and leaves nothing else behind.
train::RunOptions profiled(const ProfileArguments& arguments) {
  train::RunOptions options = arguments.config.load();
  options.profile.on = true;
  options.profile.repeat = false;
  options.profile.then_stop = true;
  options.profile.steps = arguments.steps.value_or(options.profile.steps);
  options.profile.wait = arguments.wait.value_or(options.profile.wait);
  options.profile.warm_up = arguments.warm_up.value_or(options.profile.warm_up);
  options.profile.overhead = std::max<int64_t>(options.profile.steps, 5);
  const int64_t never = std::numeric_limits<int64_t>::max();
  options.checkpoint.every = options.valid.every = never;
  options.checkpoint.at_end = options.train.initial_validation = false;
  options.valid.patience = 0;
  options.train.time.reset();
  return options;
}

std::filesystem::path profile_dir(const train::RunOptions& options) {
  return options.profile.dir.empty() ? std::filesystem::path(train::run_dir(options)) / "profile"
                                     : std::filesystem::path(options.profile.dir);
}

EndRecord profile_as_rank(const ProfileArguments& arguments, const train::RunOptions& options,
                          const launch::Environment& here) {
  train::Job job(options, here);
  train::Session session;
  return job.watched([&] {
    session = train::open_session(options, {.ranks = job.ranks(),
                                            .claimed = here.run_number > 0,
                                            .quiet = true,
                                            .profile = true,
                                            .config_spec = arguments.config.spec});
    return session.trainer->fit();
  });
}

void print_files(const std::filesystem::path& dir) {
  fmt::print(
      "\nresults are in {}: trace.json (all ranks; ui.perfetto.dev), rank<R>_trace.json,\n"
      "rank<R>_memory.html, rank<R>_memory.json, rank<R>_memory_snapshot.pickle, summary.json\n",
      dir.string());
}

Exit profile_command(const ProfileArguments& arguments) {
  const train::RunOptions options = profiled(arguments);
  launch::Environment here = launch::environment();
  if (arguments.ranks > 1) train::check_ranks(options, arguments.ranks);
  if (const auto ended = start_ranks(arguments.ranks, here, options, train::Use::profile))
    return *ended;
  const EndRecord end = profile_as_rank(arguments, options, here);
  const Exit code = end.reason == "signal" ? Exit::interrupted : Exit::ok;
  if (here.rank != 0 || code != Exit::ok) return code;
  const std::filesystem::path dir = profile_dir(options);
  const std::string summary = read_text(dir / "summary.json");
  if (arguments.json) {
    nlohmann::json object = nlohmann::json::parse(summary);
    object["dir"] = dir.string();
    fmt::print("{}\n", object.dump());
    return code;
  }
  fmt::print("{}", report::profile_text(summary));
  print_files(dir);
  return code;
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ProfileArguments>();
  CLI::App* command = app.add_subcommand("profile", "show where time and memory of a few steps go");
  add_config(*command, arguments->config);
  add_ranks(*command, arguments->ranks);
  const auto number = [&](const char* flag, std::optional<int64_t>& value, const char* help,
                          int64_t least) {
    command->add_option(flag, value, help)
        ->type_name("N")
        ->check(CLI::Range(least, int64_t{10'000}));
  };
  number("--steps", arguments->steps, "steps in the trace (default: profile.steps, 5)", 1);
  number("--wait", arguments->wait, "steps before the warm-up (default: profile.wait, 1)", 0);
  number("--warm-up", arguments->warm_up,
         "warm-up steps before the trace (default: profile.warm_up, 3)", 0);
  add_json(*command, arguments->json);
  command->footer(
      "The files are written into profile/ of the run's folder; an existing run in that folder is "
      "not changed. To profile a job that is running, use `touch <run folder>/profile.request` or "
      "send it SIGUSR2.");
  command->callback(
      [&action, arguments] { action = [arguments] { return profile_command(*arguments); }; });
}

}  // namespace braid::cli
