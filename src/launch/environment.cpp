// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/environment.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "braid/core/error.h"

namespace braid::launch {
namespace {

int number_in(const char* name, int least, int most) {
  const std::string text = variable(name).value_or("");
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole && number >= least && number <= most) return number;
  throw ConfigError({.what = fmt::format("the environment variable {} is \"{}\"", name, text),
                     .why = fmt::format("a number from {} to {} is needed", least, most),
                     .fix = fmt::format("start with torchrun or srun, or: unset {}", name)});
}

void read_place(Environment& here, const char* rank, const char* world, const char* local) {
  here.world = number_in(world, 1, 1 << 24);
  here.rank = number_in(rank, 0, here.world - 1);
  here.local_rank = variable(local) ? number_in(local, 0, here.world - 1) : 0;
}

void expect_both(const char* given, const char* missing) {
  throw ConfigError(
      {.what = fmt::format("the environment variable {} is set, {} is not", given, missing),
       .why = "a rank needs to know both its number and how many there are",
       .fix = fmt::format("start with torchrun, which sets both, or: unset {}", given)});
}

int terminal_columns() {
  for (const int fd : {STDERR_FILENO, STDOUT_FILENO}) {
    struct winsize size = {};
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  }
  return 80;
}

std::string host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

Environment environment() {
  Environment here;
  const bool rank = variable("RANK").has_value();
  const bool world = variable("WORLD_SIZE").has_value();
  if (rank && !world) expect_both("RANK", "WORLD_SIZE");
  if (world && !rank) expect_both("WORLD_SIZE", "RANK");
  if (rank)
    read_place(here, "RANK", "WORLD_SIZE", "LOCAL_RANK");
  else if (variable("SLURM_STEP_ID") && variable("SLURM_PROCID") && variable("SLURM_NTASKS"))
    read_place(here, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID");
  here.master_address = variable("MASTER_ADDR").value_or("");
  if (variable("MASTER_PORT")) here.master_port = number_in("MASTER_PORT", 1, 65535);
  here.agent_serves = variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  here.job_id = variable("SLURM_JOB_ID").value_or("");
  here.stdout_is_tty = ::isatty(STDOUT_FILENO) == 1;
  here.stderr_is_tty = ::isatty(STDERR_FILENO) == 1;
  here.columns = terminal_columns();
  here.host = host_name();
  return here;
}

}  // namespace braid::launch
