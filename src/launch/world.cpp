// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/world.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <future>
#include <map>
#include <thread>

#include "braid/comm/mismatch.h"
#include "braid/core/error.h"
#include "braid/launch/hosts.h"
#include "launch/meet.h"

namespace braid::launch {
namespace {

void refuse_without_srun(const Environment& here) {
  if (here.waiting_tasks <= 1) return;
  throw ConfigError(
      {.what = fmt::format("started without srun inside a job of {} tasks", here.waiting_tasks),
       .why = "srun starts a process for each task; this one would train alone",
       .fix = "start with srun braid train ..., or with --ranks N for N ranks on this host"});
}

// mpirun and torchrun leave their ranks running when they are killed.
void end_with_parent(const Environment& here) {
  if (here.parent_is_launcher) ::prctl(PR_SET_PDEATHSIG, SIGTERM);
}

// A store whose host was cut off never answers: the meeting runs on a thread that can be left.
Meeting meet_in_time(const Environment& here, const Options& options) {
  std::packaged_task<Meeting()> task([here, options] { return meet(here, options); });
  std::future<Meeting> result = task.get_future();
  std::thread(std::move(task)).detach();
  const double limit = timeouts(options).start + timeouts(options).store + 5;
  if (result.wait_for(std::chrono::duration<double>(limit)) == std::future_status::ready)
    return result.get();
  throw CommError(
      {.what =
           fmt::format("the store at {}:{} does not answer", here.master_address, here.master_port),
       .why = fmt::format("{:.0f} s are over", limit),
       .fix = fmt::format("check that {} runs and can be reached from here", here.master_address)});
}

double measure_latency(const comm::Group& group) {
  std::array<double, 5> seconds = {};
  const at::Tensor four_bytes = at::zeros({1}, at::kFloat);
  group.all_reduce(four_bytes).wait();  // the first sets up buffers
  for (double& one : seconds) {
    const auto start = std::chrono::steady_clock::now();
    group.all_reduce(four_bytes).wait();
    one = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

int threads_of(const Environment& here, int share) {
  return here.math_threads > 0 ? std::min(here.math_threads, share) : share;
}

// Numbers of GPUs are -1 on a CPU.
int gpu_wanted(const Environment& here, const Options& options) {
  if (options.device == "cpu") return -1;
  if (options.device == "cuda") return gpu_of(here, options);
  throw ConfigError({.what = fmt::format("open_world with device \"{}\"", options.device),
                     .why = "tensors of a rank lie on the CPU or on a GPU of its own",
                     .fix = "set launch::Options::device to cpu or cuda"});
}

World alone(const Environment& here, int gpu) {
  World world;
  world.gpu = gpu;
  world.threads = threads_of(here, std::max(1, static_cast<int>(here.cores.size())));
  return world;
}

}  // namespace

World open_world(const Environment& here, const Options& options) {
  refuse_without_srun(here);
  World world;
  world.gpu = gpu_wanted(here, options);
  check_backend(options, world.device());
  if (here.world == 1) return alone(here, world.gpu);
  end_with_parent(here);
  Meeting meeting = meet_in_time(here, options);
  world.address = best_address(meeting.seats, here, options);
  world.store = meeting.store;
  world.token = here.token;
  world.serves_store = here.rank == 0 && !here.store_served;
  world.threads = threads_of(here, share_of_cores(meeting.seats, here.rank));
  for (const Seat& seat : meeting.seats)
    world.places.push_back(fmt::format("{}:{}", seat.host, seat.pid));
  const comm::Timeouts limits = timeouts(options);
  const auto gloo = comm::gloo(world.store.under("gloo"), here.rank, here.world,
                               {.address = world.address, .timeout_seconds = limits.collective});
  // A comparison ends before the watch would speak of the same call.
  world.ranks = comm::Group(comm::checked(
      gloo, world.store,
      {.timeout_seconds = 0.8 * limits.collective, .on = comm::wants_checks(here.debug)}));
  world.control = world.ranks;
  world.latency_seconds = measure_latency(world.control);
  if (options.set_threads) at::set_num_threads(world.threads);
  if (world.gpu >= 0) refuse_shared_gpu(world, gpu_name(here, world.gpu), options);
  world.ranks = carrier(world, here, options, world.device());
  return world;
}

void leave(const World& world) {
  const int size = world.control.size();
  if (size == 1) return;
  try {
    world.store.set(fmt::format("left/{}", world.control.rank()), "");
    if (!world.serves_store || std::uncaught_exceptions() > 0) return;
    for (int rank = 1; rank < size; ++rank) world.store.get(fmt::format("left/{}", rank), 10);
  } catch (const std::exception&) {  // a rank that was lost has been named before
  }
}

std::string gpu_name(const Environment& here, int index, const std::string& uuid) {
  if (!uuid.empty()) return uuid;
  std::string number = std::to_string(index);
  if (!here.visible_gpus.empty()) {
    const std::vector<std::string> visible = expand_hosts(here.visible_gpus);
    if (static_cast<size_t>(index) < visible.size()) number = visible[static_cast<size_t>(index)];
  }
  return number.starts_with("GPU-") ? number : fmt::format("GPU {} of {}", number, here.host);
}

void refuse_shared_gpu(const World& world, const std::string& gpu, const Options& options) {
  const int size = world.control.size();
  if (size == 1 || options.share_gpu) return;
  const auto mine = static_cast<int64_t>(gpu.empty() ? 0 : std::hash<std::string>()(gpu));
  const comm::Store names = world.store.under("gpu");
  names.set(std::to_string(mine), gpu + "\n");
  const at::Tensor all = at::zeros({size}, at::kLong);
  world.control.all_gather(all, at::full({1}, mine, at::kLong)).wait();
  const int64_t* const numbers = all.const_data_ptr<int64_t>();
  std::map<int64_t, int> owners;
  for (int rank = 0; rank < size; ++rank) {
    const int64_t number = numbers[rank];
    if (number == 0 || owners.emplace(number, rank).second) continue;
    const std::string name = names.get(std::to_string(number), timeouts(options).store);
    throw ConfigError(
        {.what = fmt::format("ranks {} and {} both use {}", owners[number], rank,
                             name.substr(0, name.size() - 1)),
         .why = "each rank needs a GPU of its own: two share its memory and its speed",
         .fix = "start as many ranks as there are GPUs, or --set launch.share_gpu=true"});
  }
}

}  // namespace braid::launch
