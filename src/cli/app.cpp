// SPDX-License-Identifier: BSD-3-Clause
#include "cli/app.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "braid/core/cpu.h"
#include "braid/launch/environment.h"
#include "braid/train/job.h"
#include "cli/failure.h"
#include "cli/usage.h"

namespace braid::cli {
namespace {

void list_flags(const CLI::App& app, const std::string& prefix, std::vector<std::string>& flags) {
  for (const CLI::Option* option : app.get_options())
    flags.push_back(prefix + option->get_name(true, true));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    list_flags(*command, prefix + command->get_name() + " ", flags);
}

bool computes(const CLI::App& app) {
  const std::array commands = {"train", "eval", "predict", "profile", "parity"};
  return std::any_of(commands.begin(), commands.end(),
                     [&](const char* name) { return app.got_subcommand(name); });
}

int complain(const std::string& text, Exit code) {
  std::fputs((text + "\n").c_str(), stderr);  // where nobody can hear it, the code still says it
  return static_cast<int>(code);
}

// A file of the run that took the number of a closed stderr would get what is said there.
void open_what_was_closed() {
  int file = -1;
  do {
    file = ::open("/dev/null", O_RDWR);
  } while (file >= 0 && file <= STDERR_FILENO);
  if (file > STDERR_FILENO) ::close(file);
}

// What was printed may still lie in a buffer for a disk that is full.
int with_all_written(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  if (errno == EPIPE) return code;  // nobody reads it any more, and the run is done
  complain(explain({.what = fmt::format("cannot write to stdout: {}",
                                        errno != 0 ? std::strerror(errno) : "a write failed"),
                    .why = "not all of what was asked for is there",
                    .fix = "free space, or send stdout to another place"}),
           Exit::storage);
  // An exception of the write itself is an unknown one there.
  const bool known = code != static_cast<int>(Exit::ok) && code != static_cast<int>(Exit::internal);
  return known ? code : static_cast<int>(Exit::storage);
}

}  // namespace

std::unique_ptr<CLI::App> make_app(Action& action) {
  auto app = std::make_unique<CLI::App>(
      "braid: train LibTorch models on a laptop, a GPU or many nodes", "braid");
  app->require_subcommand(1);
  app->set_version_flag("--version", "braid 0.1.0 (torch 2.11.0)");
  app->footer(
      "Start with: braid train configs/vit.yaml:demo     Help for one command: braid train --help");
  add_train(*app, action);
  add_eval(*app, action);
  add_predict(*app, action);
  add_parity(*app, action);
  add_profile(*app, action);
  add_bench(*app, action);
  add_plan(*app, action);
  add_inspect(*app, action);
  add_schedule(*app, action);
  add_report(*app, action);
  add_convert(*app, action);
  add_data(*app, action);
  add_doctor(*app, action);
  add_help(*app, action);
  return app;
}

std::vector<std::string> flag_list(const CLI::App& app) {
  std::vector<std::string> flags;
  list_flags(app, "", flags);
  return flags;
}

namespace {

// Everything, also the reading of the words: memory may be short from the start.
int or_complain(const std::function<int()>& body) {
  try {
    return body();
  } catch (const train::LostRanks& error) {  // one of the ranks has said it
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    const Failure failure = failure_of(error);
    return complain(failure.text, failure.code);
  }
}

// A file at its size limit (ulimit -f) is an error of the write. A run goes on when the reader of
// its console is gone; other commands end, as those before `| head` do.
void answer_failed_writes(const CLI::App& app) {
  std::signal(SIGXFSZ, SIG_IGN);
  if (app.got_subcommand("train") || app.got_subcommand("profile")) std::signal(SIGPIPE, SIG_IGN);
}

int parse_and_act(int argc, char** argv) {
  avoid_broken_amx();  // before the first tensor operation
  Action action;
  const std::unique_ptr<CLI::App> app = make_app(action);
  try {
    app->parse(words_for_parser(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app->exit(error);  // --help, --version
    return complain(usage_complaint(*app, error), Exit::usage);
  }
  answer_failed_writes(*app);
  if (computes(*app)) launch::wait_briefly(argv);
  settle_math();
  return static_cast<int>(action());
}

}  // namespace

int run(int argc, char** argv) {
  open_what_was_closed();  // before any other file is opened
  return with_all_written(or_complain([&] { return parse_and_act(argc, argv); }));
}

}  // namespace braid::cli
