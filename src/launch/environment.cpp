// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/environment.h"

#include <sched.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace braid::launch {
namespace {

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

std::vector<int> allowed_cores() {
  constexpr int most = 8192;
  std::vector<int> cores;
  cpu_set_t* mask = CPU_ALLOC(most);
  const size_t bytes = CPU_ALLOC_SIZE(most);
  if (mask != nullptr && ::sched_getaffinity(0, bytes, mask) == 0)
    for (int core = 0; core < most; ++core)
      if (CPU_ISSET_S(core, bytes, mask)) cores.push_back(core);
  CPU_FREE(mask);
  return cores;
}

// Valgrind, or a loader that was told to run this program: /proc/self/exe is not the way back.
bool runs_in_another() {
  const bool loader = ::getauxval(AT_BASE) == 0;  // the kernel loaded it as the program itself
  return loader || variable("LD_PRELOAD").value_or("").find("vgpreload_") != std::string::npos;
}

}  // namespace

bool send_nccl_debug_to(const std::string& file) {
  if (!variable("NCCL_DEBUG") || variable("NCCL_DEBUG_FILE")) return false;
  return ::setenv("NCCL_DEBUG_FILE", file.c_str(), /*overwrite=*/0) == 0;
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

Environment environment() {
  Environment here = environment(Lookup(variable));
  here.stdout_is_tty = ::isatty(STDOUT_FILENO) == 1;
  here.stderr_is_tty = ::isatty(STDERR_FILENO) == 1;
  here.columns = terminal_columns();
  here.host = host_name();
  here.cores = allowed_cores();
  return here;
}

void wait_briefly(char* const* words) {
  if (variable("GOMP_SPINCOUNT") || variable("OMP_WAIT_POLICY") || runs_in_another()) return;
  std::error_code refused;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", refused);  // keeps its name
  if (refused || ::setenv("GOMP_SPINCOUNT", "3000", /*overwrite=*/0) != 0) return;
  ::execv(program.c_str(), words);
}

std::vector<std::string> variables_to_inherit() {
  std::vector<std::string> kept;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view name =
        std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
    bool ours = name.starts_with("TORCHELASTIC_");
    for (const std::string_view set :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR",
          "MASTER_PORT", "BRAID_STORE", "BRAID_STORE_SOCKET", "BRAID_JOB_TOKEN",
          "BRAID_JOB_TOKEN_FILE"})
      ours = ours || name == set;
    if (!ours) kept.emplace_back(*entry);
  }
  return kept;
}

}  // namespace braid::launch
